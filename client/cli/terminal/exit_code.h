// Exit codes of `muster` (docs/reference/cli.md). Stable: scripts rely on them.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_EXIT_CODE_H_
#define MUSTER_CLIENT_CLI_TERMINAL_EXIT_CODE_H_

#include "absl/status/status.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

enum ExitCode {
  kDone = 0,
  kOtherError = 1,
  // Wrong usage, and a refused job file.
  kUsage = 2,
  kJobFailed = 100,
  kTimedOut = 101,
  kNotFound = 102,
  kJobCancelled = 103,
  kUnreachable = 104,
  // The job has saved and ended because of a signal, and can continue.
  kPreempted = 105,
  kInterrupted = 130,
};

// The exit code for the error of a call to a coordinator.
ExitCode ExitCodeOf(const absl::Status& status);
// The exit code for a job that has ended.
ExitCode ExitCodeOf(v1::Job::State state);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_EXIT_CODE_H_
