// Shows a job until the job has ended, and how it ended.
#ifndef MUSTER_CLIENT_CLI_FOLLOW_H_
#define MUSTER_CLIENT_CLI_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/api/cancellation.h"
#include "client/api/client.h"
#include "client/cli/command.h"

namespace muster::cli {

// Shows the job's progress on stderr. Returns the job's last state, or the first state for which
// `until` is true. `seen`, if not null, gets each state, also those before an error.
absl::StatusOr<v1::Job> FollowJob(Console* console, client::MusterClient* client,
                                  const std::string& job_id, const client::StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& until = nullptr,
                                  v1::Job* seen = nullptr);

// Prints a job that has ended: its summary or its document on stdout, its failure on stderr.
// Returns its exit code.
ExitCode ReportEnd(Console* console, const v1::Job& job, Output output);

// A job of `muster run` on a coordinator of its own may wait for a person, in two cases:
// - The job has halted, because none of its checkpoints can be read. The run asks on the terminal
//   what to do, and ends if there is no terminal.
// - The job cannot start again, because this machine lacks something, such as the files of its
//   data. There is no other machine, so the run ends after some starts.

// Returns whether the job has halted because none of its checkpoints can be read.
bool IsHalted(const v1::Job& job);

// Finds out from the states of a job, in order, whether the job cannot start again on this machine.
class Standstill {
 public:
  // Returns true in a state after a failure through the machine's fault, at least three generations
  // after the base. The base is the newest generation that did a step or used a restart; at first,
  // the generation of the first state (at least 1).
  bool Seen(const v1::Job& job);

 private:
  uint64_t generation_ = 0;
  uint64_t step_ = 0;
  uint32_t restarts_ = 0;
};

struct HaltOptions {
  client::StreamOptions stream;
  // Cancelled by an interrupt: the question needs no answer any more.
  const client::Cancellation* interrupted = nullptr;
  // Whether the job starts again from step 0 without a question.
  bool from_scratch = false;
};

// Follows a job as FollowJob does, with the same `seen`, and also returns in these cases:
// - The job stands still.
// - The job has halted, and the person ends the run, or there is no terminal to ask on.
// A job that halted in an earlier run first tries its checkpoints again.
absl::StatusOr<v1::Job> FollowOrAsk(Console* console, client::MusterClient* client,
                                    const std::string& job_id, const HaltOptions& options,
                                    v1::Job* seen);

// Says why the run leaves a job that has not ended, and the commands that continue the job.
// `state`: the directory of --state. Empty: there is none, and of the job only its checkpoints are
// kept. Prints the job's document if `output` asks for a document.
ExitCode ReportLeft(Console* console, const v1::Job& job, const std::string& state,
                    const std::string& file, Output output);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_FOLLOW_H_
