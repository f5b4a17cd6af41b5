#include "worker/agent/worker_environment.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace muster::agent {
namespace {

// docs/agent.md lists them.
constexpr const char* kForWorkers[] = {
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_*", "LD_LIBRARY_PATH",
    // Where an installed worker finds LibTorch.
    "LIBTORCH",
    // Computing and communication.
    "CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "OMP_*", "GOMP_*", "KMP_*",
    "MKL_*", "TORCH_*", "PYTORCH_*",
    // Muster's own log, and the marks by which tests know their processes.
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

}  // namespace muster::agent
