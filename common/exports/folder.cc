#include "common/exports/folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace muster::exports {
namespace {

namespace fs = std::filesystem;

// Files of a checkpoint, and of the folder of a job's checkpoints.
constexpr const char* kOfCheckpoints[] = {"MANIFEST.json", ".muster-job", ".muster-epoch"};

absl::Status Refused(const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("found ", path, ", but ", why, "; choose another folder"));
}

}  // namespace

absl::Status CheckFolder(const std::string& path) {
  // A file that cannot be examined does not forbid the folder.
  std::error_code ignored;
  fs::path above = fs::path(path + "/").lexically_normal().parent_path();
  for (;; above = above.parent_path()) {
    if (fs::exists(above, ignored) && !fs::is_directory(above, ignored)) {
      return Refused(path, absl::StrCat(above.string(), " is a file"));
    }
    for (const char* name : kOfCheckpoints) {
      if (!fs::exists(above / name, ignored)) continue;
      return Refused(path, absl::StrCat(above.string(), " holds a job's checkpoints"));
    }
    if (above == above.parent_path()) return absl::OkStatus();
  }
}

}  // namespace muster::exports
