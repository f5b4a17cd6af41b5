// The folders from which a worker loads plug-ins. A plug-in is code that runs with the rights of
// the agent's user. So the operator of the agent decides, and not the user who submits a job.
#ifndef MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_
#define MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The environment variables by which an agent names the folders to its workers.
inline constexpr char kPluginFoldersVariable[] = "MUSTER_PLUGINS";
inline constexpr char kOwnPluginsVariable[] = "MUSTER_OWN_PLUGINS";

struct PluginFolders {
  // The folders of plug-ins, which may also lie in folders below. Absolute, without links.
  std::vector<std::string> folders;
  // Whether each file is allowed, too, that belongs to root or the user of the process, and that
  // not everybody may write. For an agent whose user submits the jobs.
  bool own_files = false;
};

// INVALID_ARGUMENT: one of the folders is not a folder, or its path has a ':'.
absl::StatusOr<PluginFolders> ResolvePluginFolders(const std::vector<std::string>& folders,
                                                   bool own_files);

// The values of both variables.
std::map<std::string, std::string> ToEnvironment(const PluginFolders& allowed);
// The folders that the agent named. Nothing: no agent started this process, and its user says which
// code it runs.
std::optional<PluginFolders> PluginFoldersOfThisProcess();

// The path of the plug-in without links: the file to check and to load. PERMISSION_DENIED: the
// plug-in is not allowed; the message says what is allowed and what to do. Errors of the system:
// the file cannot be found.
absl::StatusOr<std::string> AllowedPlugin(const std::string& path, const PluginFolders& allowed);

}  // namespace muster

#endif  // MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_
