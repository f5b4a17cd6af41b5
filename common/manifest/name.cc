#include "common/manifest/name.h"

#include <charconv>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::manifest {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporarySuffix[] = ".tmp";

// Reads a decimal number at `*at` and moves `*at` behind it.
std::optional<int64_t> ParseNumber(const std::string& text, size_t* at) {
  const char* begin = text.data() + *at;
  const char* end = text.data() + text.size();
  if (begin == end || *begin < '0' || *begin > '9') return std::nullopt;
  int64_t value = 0;
  const auto [next, error] = std::from_chars(begin, end, value);
  if (error != std::errc()) return std::nullopt;
  *at += next - begin;
  return value;
}

}  // namespace

std::string FinalName(int64_t step, int64_t generation) {
  return absl::StrCat("step-", step, "-g", generation);
}

std::string TemporaryName(int64_t step, int64_t generation) {
  return FinalName(step, generation) + kTemporarySuffix;
}

std::optional<CheckpointName> ParseFinalName(const std::string& name) {
  if (!absl::StartsWith(name, "step-")) return std::nullopt;
  size_t at = 5;
  const auto step = ParseNumber(name, &at);
  if (!step.has_value() || name.compare(at, 2, "-g") != 0) return std::nullopt;
  at += 2;
  const auto generation = ParseNumber(name, &at);
  if (!generation.has_value() || name != FinalName(*step, *generation)) return std::nullopt;
  return CheckpointName{*step, *generation};
}

std::optional<CheckpointName> ParseTemporaryName(const std::string& name) {
  if (!absl::EndsWith(name, kTemporarySuffix)) return std::nullopt;
  return ParseFinalName(name.substr(0, name.size() - sizeof(kTemporarySuffix) + 1));
}

std::string NameOfDirectory(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  if (error) whole = path;
  whole = whole.lexically_normal();
  return whole.has_filename() ? whole.filename() : whole.parent_path().filename();
}

}  // namespace muster::manifest
