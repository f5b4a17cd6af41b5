// Decides what `muster run --state DIR FILE` does if DIR holds jobs already. A batch script that is
// started again, for example after a preemption, continues its job. Also says how a person
// continues a preempted run.
#ifndef MUSTER_CLIENT_CLI_SAME_COMMAND_H_
#define MUSTER_CLIENT_CLI_SAME_COMMAND_H_

#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::cli {

// The user's request besides the job file.
enum class RerunMode {
  kGoOn,
  // --new: another job.
  kAnotherJob,
  // --retry: the next attempt of a job that failed or was stopped, with the values of --set.
  kNextAttempt,
};

struct SameCommand {
  enum class What {
    // There is no job to continue. `why` names a stopped job that --retry would continue.
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
  // The settings for RetryJob, with kNextAttempt: those that have changed and may change.
  std::vector<std::string> settings = {};
  // A text for people: what is done, or why nothing is done. May be empty.
  std::string why;
};

// Decides from the jobs of a state directory. Pure.
// - `jobs`: all jobs of the state directory, newest first.
// - `job_file`: the absolute path of the job file; empty: the job comes from standard input.
// - `spec`: the job as in the file, without defaults and with the values of --set.
// - `settings`: the values of --set.
SameCommand Decide(const std::vector<v1::Job>& jobs, const std::string& job_file,
                   const v1::JobSpec& spec, RerunMode mode,
                   const std::vector<std::string>& settings = {});

// The path of the newest complete checkpoint in a job's own folder. Empty: there is none, or the
// folder cannot be read. The coordinator may not know the checkpoint, if its store could not be
// written.
std::string NewestCheckpoint(const std::string& job_folder);

// `words` as a line that a shell reads as the same words.
std::string ShellLine(const std::vector<std::string>& words);

// The words of a `muster run` without --new, --retry and all options for the start of the job, and
// with `checkpoint` as the start. Without a checkpoint the start stays unchanged. Pure.
std::vector<std::string> ContinueFrom(const std::vector<std::string>& words,
                                      const std::string& checkpoint);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_SAME_COMMAND_H_
