#include "worker/agent/worker_command.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/process/stop_signals.h"
#include "common/secret/secret.h"
#include "common/secret/worker_variable.h"
#include "common/status/status.h"
#include "common/version/version.h"

namespace muster::agent {
namespace {

// The variables for workers; docs/reference/agent.md lists them, too.
constexpr const char* kForWorkers[] = {
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_*", "LD_LIBRARY_PATH",
    // The place of LibTorch for an installed worker.
    "LIBTORCH",
    // Settings of computation and communication.
    "CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "OMP_*", "GOMP_*", "KMP_*",
    "MKL_*", "TORCH_*", "PYTORCH_*",
    // Muster's own log, and the marks by which tests find their processes.
    "MUSTER_LOG", "MUSTER_TEST_*",
    // Read by programs that are built with sanitizers.
    "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"};

bool Fits(const std::string& name, absl::string_view pattern) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern) : name == pattern;
}

}  // namespace

bool IsForWorkers(const std::string& name, const std::vector<std::string>& more) {
  const auto fits = [&name](const auto& pattern) { return Fits(name, pattern); };
  return std::any_of(std::begin(kForWorkers), std::end(kForWorkers), fits) ||
         std::any_of(more.begin(), more.end(), fits);
}

absl::Status CheckVariableNames(const std::vector<std::string>& more) {
  for (const std::string& given : more) {
    const absl::string_view name = absl::StripSuffix(given, "*");
    const bool valid = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(c) || c == '_';
    });
    if (valid) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--pass-env ", given,
                     ": expected the name of an environment variable, or the beginning of names "
                     "and *, such as HF_*"));
  }
  return absl::OkStatus();
}

absl::Status CheckWorkerBinary(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("no worker binary at '", path, "' (", strerror(errno),
                                            "); --worker names it"));
  }
  if (!S_ISREG(info.st_mode) || access(path.c_str(), X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' is not a program that can be run"));
  }
  return absl::OkStatus();
}

process::SpawnOptions ToSpawnOptions(WorkerCommand command) {
  const WorkerId& worker = command.worker;
  command.environment["OMP_NUM_THREADS"] = absl::StrCat(command.threads);
  command.environment["CUDA_VISIBLE_DEVICES"] = command.gpu;
  command.environment[kAgentVersionVariable] = Version();
  if (!command.secret.empty()) {
    command.environment[secret::kWorkerVariable] = secret::ToHex(command.secret);
  }
  std::vector<int> blocked = process::PreemptionSignals();
  blocked.push_back(SIGINT);
  return {
      .argv = {command.binary, "--coordinator", command.coordinator, "--job", worker.job,
               "--generation", absl::StrCat(worker.generation), "--rank", absl::StrCat(worker.rank),
               "--incarnation", worker.incarnation, "--agent-pid", absl::StrCat(getpid())},
      .inherits = [more = std::move(command.pass_environment)](
                      const std::string& name) { return IsForWorkers(name, more); },
      .environment = std::move(command.environment),
      .grouping = process::Grouping::kOwnGroup,
      .output = process::Output::kPipe,
      .parent_death_signal = SIGKILL,
      // The worker itself unblocks the signals of its agent after it has loaded its libraries
      // (worker/main.cc).
      .blocked = std::move(blocked),
  };
}

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
