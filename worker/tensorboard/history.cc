#include "worker/tensorboard/history.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "common/files/disk.h"
#include "common/status/status.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The number in a name that FileName has made.
std::optional<int64_t> NumberOf(const std::string& name) {
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return std::nullopt;
  const size_t end = name.find('.', kPrefix.size());
  if (end == std::string::npos) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(name.substr(kPrefix.size(), end - kPrefix.size()), &number)) {
    return std::nullopt;
  }
  return number;
}

// The names of event files in a folder, in their order.
absl::StatusOr<std::vector<std::string>> List(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (NumberOf(name).has_value()) names.push_back(std::move(name));
  }
  if (error && error.value() != ENOENT) return files::ErrnoStatus(error.value(), "list", folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<ParsedEvent> ReadEvent(std::istream& file) {
  const auto data = ReadRecord(file);
  return data.has_value() ? ParseEvent(*data) : std::nullopt;
}

// The step of the START with which a file begins.
std::optional<int64_t> StartOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!ReadEvent(file).has_value()) return std::nullopt;  // the version
  const auto event = ReadEvent(file);
  return event.has_value() ? event->start : std::nullopt;
}

}  // namespace

std::string FileName(int64_t number, const std::string& writer) {
  return absl::StrFormat("%s%010d.%s", kPrefix, number, writer);
}

absl::StatusOr<int64_t> LargestNumber(const std::string& folder) {
  ASSIGN_OR_RETURN(const auto names, List(folder));
  return names.empty() ? 0 : *NumberOf(names.back());
}

absl::StatusOr<History> ReadHistory(const std::string& folder, int64_t step) {
  ASSIGN_OR_RETURN(auto names, List(folder));
  History history;
  while (!names.empty()) {
    const fs::path path = fs::path(folder) / names.back();
    names.pop_back();
    const auto start = StartOf(path);
    if (!start.has_value() || *start > step) continue;
    std::ifstream file(path, std::ios::binary);
    while (const auto event = ReadEvent(file)) {
      if (event->start.has_value() && *event->start <= step) history.at_step.clear();
      for (const Entry& entry : event->entries) {
        if (entry.step == step) history.at_step.push_back(entry);
        if (entry.step <= step) history.newest = std::max(history.newest.value_or(0), entry.step);
      }
    }
    break;
  }
  return history;
}

}  // namespace muster::tensorboard
