// Shows a job until it has ended, and how it ended.
#ifndef MUSTER_CLIENT_CLI_FOLLOW_H_
#define MUSTER_CLIENT_CLI_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/api/cancellation.h"
#include "client/api/client.h"
#include "client/cli/command.h"

namespace muster::cli {

// Shows the job's progress on stderr and returns its last state, or the first one for which `until`
// is true. `seen`, if not null, gets each state, also those before an error.
absl::StatusOr<v1::Job> FollowJob(Console* console, client::MusterClient* client,
                                  const std::string& job_id, const client::StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& until = nullptr,
                                  v1::Job* seen = nullptr);

// Prints a job that has ended: its summary or its document on stdout, its failure on stderr.
// Returns its exit code.
ExitCode ReportEnd(Console* console, const v1::Job& job, Output output);

// A job of `muster run` on a coordinator of its own may wait for a person. It has halted, because
// none of its checkpoints can be read: the run asks on the terminal what to do, and ends where
// there is no terminal. Or it cannot start again, because this machine lacks something, such as the
// files of its data: there is no other machine, so the run ends after some starts.

// None of its checkpoints can be read.
bool IsHalted(const v1::Job& job);

// Tells from the states of a job, in order, when it cannot start again on this machine.
class Standstill {
 public:
  // True from the state on with which three starts in a row have failed by the machine's fault:
  // they have used no restart, and no step was done.
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
  // Without a question it starts again from step 0.
  bool from_scratch = false;
};

// FollowJob, which also returns in two other cases: the job stands still; or it has halted, and the
// person ends the run, or there is no terminal to ask on. A job that halted in an earlier run first
// tries its checkpoints again. `seen`: as FollowJob's.
absl::StatusOr<v1::Job> FollowOrAsk(Console* console, client::MusterClient* client,
                                    const std::string& job_id, const HaltOptions& options,
                                    v1::Job* seen);

// Says why a job is left that has not ended, and the commands that continue it. `state`: the
// directory of --state; empty: none, and nothing of the job is kept except its checkpoints.
// `output`: a document of the job is printed where one is asked for.
ExitCode ReportLeft(Console* console, const v1::Job& job, const std::string& state,
                    const std::string& file, Output output);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_FOLLOW_H_
