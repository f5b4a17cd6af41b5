#include "worker/agent/worker_devices.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/process.h"
#include "common/status/status.h"

namespace muster::agent {

absl::Status CheckTakesGpus(const std::string& worker, absl::Duration bound) {
  process::Spawner spawner;
  ASSIGN_OR_RETURN(const auto asked, spawner.Spawn({.argv = {worker, "--devices"},
                                                    .output = process::Output::kPipe,
                                                    .parent_death_signal = SIGKILL}));
  const auto exit = asked->Wait(bound);
  if (!exit.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat(worker, " --devices did not end within ", absl::FormatDuration(bound)));
  }
  char output[1024];
  const ssize_t count = read(asked->output(), output, sizeof(output));
  const std::string text(output, std::max<ssize_t>(count, 0));
  if (exit->signal != 0 || exit->code != 0) {
    return absl::UnavailableError(
        absl::StrCat(worker, " --devices ended with ", exit->ToString(), ": ", text));
  }
  const std::vector<std::string> devices =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (std::find(devices.begin(), devices.end(), "cuda") != devices.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(worker, " is built for the CPU only"));
}

}  // namespace muster::agent
