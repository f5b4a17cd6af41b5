// What `muster run --state DIR FILE` does when DIR holds jobs already: a batch script that is
// started again, after a preemption for example, goes on with its job. And how a run that was
// preempted is continued by hand.
#ifndef MUSTER_CLIENT_CLI_SAME_COMMAND_H_
#define MUSTER_CLIENT_CLI_SAME_COMMAND_H_

#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::cli {

// What the user asks for besides the job file.
enum class Wish {
  kGoOn,
  // --new: another job.
  kAnotherJob,
  // --retry: the next attempt of a job that failed or was stopped, with the values of --set.
  kNextAttempt,
};

struct SameCommand {
  enum class What {
    // There is nothing to go on with.
    kSubmit,
    // Follow `job`, which has not ended.
    kFollow,
    // `job` is being stopped. Decide again when it has ended.
    kAwaitEnd,
    // Stop `job`, and decide again when it has ended.
    kStop,
    // Begin the next attempt of `job`, and follow it.
    kNextAttempt,
    // `job` FAILED: a person decides.
    kFailed,
    // See `why`.
    kRefuse,
  };
  What what = What::kSubmit;
  v1::Job job;
  // With kNextAttempt: the settings that have changed, and may change, for RetryJob.
  std::vector<std::string> settings = {};
  // For people: what is done, or why nothing is done. May be empty.
  std::string why;
};

// `jobs`: all of the state directory, newest first. `job_file`: the absolute path of the job file;
// empty: the job comes from standard input. `spec`: the job as the file has it, without its
// defaults and with the values of --set. `settings`: those of --set. Pure.
SameCommand Decide(const std::vector<v1::Job>& jobs, const std::string& job_file,
                   const v1::JobSpec& spec, Wish wish,
                   const std::vector<std::string>& settings = {});

// The newest whole checkpoint in a job's own folder: its path; empty: there is none, or the folder
// cannot be read. The coordinator may not know it, if its store could not be written.
std::string NewestCheckpoint(const std::string& job_folder);

// `words` as a line that a shell reads as the same words.
std::string ShellLine(const std::vector<std::string>& words);

// The words of a `muster run` without --new, --retry and all that chooses where the job starts, and
// with `checkpoint` as its start. Without a checkpoint: the start stays as it was. Pure.
std::vector<std::string> ContinueFrom(const std::vector<std::string>& words,
                                      const std::string& checkpoint);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_SAME_COMMAND_H_
