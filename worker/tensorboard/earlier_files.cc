#include "worker/tensorboard/earlier_files.h"

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
#include "worker/tensorboard/event.pb.h"
#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

// A longer number is none of FileName, and one more than it might not be a number.
constexpr size_t kDigits = 10;

// The number in a name that FileName has made.
std::optional<int64_t> NumberOf(const std::string& name) {
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return std::nullopt;
  const size_t end = name.find('.', kPrefix.size());
  if (end == std::string::npos || end - kPrefix.size() > kDigits) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(name.substr(kPrefix.size(), end - kPrefix.size()), &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string FileName(int64_t number, const std::string& writer) {
  return absl::StrFormat("%s%010d.%s", kPrefix, number, writer);
}

absl::StatusOr<std::vector<std::string>> EventFiles(const std::string& folder) {
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

int64_t LargestNumber(const std::vector<std::string>& names) {
  int64_t largest = 0;
  // The last name need not have it: other programs write numbers without zeros before them.
  for (const std::string& name : names) largest = std::max(largest, NumberOf(name).value_or(0));
  return largest;
}

Numbers NumbersAround(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step) {
  Numbers found;
  bool taken_back = false;  // what earlier files have of later steps
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (taken_back && (found.newest.has_value() || step < 0)) break;
    const bool counts = !taken_back;
    std::optional<int64_t> newest;
    std::ifstream file(fs::path(folder) / *name, std::ios::binary);
    Event event;
    while (const auto data = ReadRecord(file)) {
      if (!event.ParseFromString(*data)) break;
      if (event.session_log().status() == SessionLog::START && event.step() <= step + 1) {
        taken_back = true;
      }
      for (const Summary::Value& value : event.summary().value()) {
        if (value.value_case() != Summary::Value::kSimpleValue) continue;
        if (event.step() <= step) {
          newest = std::max(newest.value_or(0), event.step());
        } else if (counts) {
          found.tags_after.insert(value.tag());
        }
      }
    }
    if (!found.newest.has_value()) found.newest = newest;
  }
  return found;
}

}  // namespace muster::tensorboard
