#include "common/pluginfolders/plugin_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/disk.h"
#include "common/status/status.h"

namespace muster {
namespace {

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return files::ErrnoStatus(errno, "find", path);
  return std::string(real);
}

bool IsIn(const std::string& path, const std::string& folder) {
  return absl::StartsWith(path, folder == "/" ? folder : absl::StrCat(folder, "/"));
}

}  // namespace

absl::StatusOr<PluginFolders> ResolvePluginFolders(const std::vector<std::string>& folders,
                                                   bool own_files) {
  PluginFolders allowed{.own_files = own_files};
  for (const std::string& folder : folders) {
    const auto real = RealPath(folder);
    struct stat info;
    if (!real.ok() || stat(real->c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--plugins ", folder, ": expected a folder that exists"));
    }
    if (absl::StrContains(*real, ':')) {
      return absl::InvalidArgumentError(
          absl::StrCat("--plugins ", folder, ": expected a path without ':', found ", *real));
    }
    allowed.folders.push_back(*real);
  }
  return allowed;
}

std::map<std::string, std::string> ToEnvironment(const PluginFolders& allowed) {
  return {{kPluginFoldersVariable, absl::StrJoin(allowed.folders, ":")},
          {kOwnPluginsVariable, allowed.own_files ? "1" : ""}};
}

std::optional<PluginFolders> PluginFoldersOfThisProcess() {
  const char* const folders = std::getenv(kPluginFoldersVariable);
  if (folders == nullptr) return std::nullopt;
  const char* const own = std::getenv(kOwnPluginsVariable);
  return PluginFolders{.folders = absl::StrSplit(folders, ':', absl::SkipEmpty()),
                       .own_files = own != nullptr && *own != '\0'};
}

absl::StatusOr<std::string> AllowedPlugin(const std::string& path, const PluginFolders& allowed) {
  ASSIGN_OR_RETURN(std::string real, RealPath(path));
  for (const std::string& folder : allowed.folders) {
    if (IsIn(real, folder)) return real;
  }
  struct stat info;
  if (stat(real.c_str(), &info) != 0) return files::ErrnoStatus(errno, "find", real);
  const bool own = info.st_uid == geteuid() || info.st_uid == 0;
  const bool writable = (info.st_mode & S_IWOTH) != 0;
  if (allowed.own_files && own && !writable) return real;
  std::vector<std::string> expected;
  for (const std::string& folder : allowed.folders) expected.push_back(absl::StrCat("in ", folder));
  if (allowed.own_files) {
    expected.push_back(absl::StrCat("of the agent's user (uid ", geteuid(),
                                    ") or of root that not everybody can write"));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "plug-in ", path, ": the agent of this node does not load it: expected a file ",
      expected.empty() ? "in a folder that it was started with (--plugins), and there is none"
                       : absl::StrJoin(expected, " or "),
      ", found ", real, " of uid ", info.st_uid, writable ? ", which everybody can write" : "",
      "; copy the file there, or let the operator of the node start muster-agent (or musterd, for "
      "its own agent) with --plugins FOLDER"));
}

}  // namespace muster
