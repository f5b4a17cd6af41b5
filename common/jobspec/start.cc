#include "common/jobspec/start.h"

#include "absl/strings/numbers.h"

namespace muster::jobspec {

bool IsDirectory(const std::string& checkpoint) {
  return checkpoint.find('/') != std::string::npos;
}

std::optional<JobAndStep> ParseJobAndStep(const std::string& checkpoint) {
  const size_t at = checkpoint.find('@');
  JobAndStep result{.job = checkpoint.substr(0, at), .step = std::nullopt};
  constexpr char kIdCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (result.job.empty() || result.job.find_first_not_of(kIdCharacters) != std::string::npos) {
    return std::nullopt;
  }
  if (at == std::string::npos) return result;
  uint64_t step = 0;
  if (!absl::SimpleAtoi(checkpoint.substr(at + 1), &step)) return std::nullopt;
  result.step = step;
  return result;
}

}  // namespace muster::jobspec
