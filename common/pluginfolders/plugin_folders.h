// From which folders a worker loads plug-ins: a plug-in is code that runs with the rights of the
// agent's user, so this is for the operator of the agent to say, and not for who submits a job.
#ifndef MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_
#define MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The environment variables in which an agent tells its workers.
inline constexpr char kPluginFoldersVariable[] = "MUSTER_PLUGINS";
inline constexpr char kOwnPluginsVariable[] = "MUSTER_OWN_PLUGINS";

struct PluginFolders {
  // What lies in them, and in the folders below. Absolute, without links.
  std::vector<std::string> folders;
  // Also each file that belongs to the user of the process, or to root, and that not everybody may
  // write. For an agent whose user is the one who submits the jobs.
  bool own_files = false;
};

// INVALID_ARGUMENT: one of them is no folder, or its path has a ':'.
absl::StatusOr<PluginFolders> ResolvePluginFolders(const std::vector<std::string>& folders,
                                                   bool own_files);

// Both variables.
std::map<std::string, std::string> ToEnvironment(const PluginFolders& allowed);
// Nothing: no agent has started this process, but somebody who says which code it runs.
std::optional<PluginFolders> PluginFoldersOfThisProcess();

// The path of the plug-in without links: the file that is checked, and that is to be loaded.
// Errors: PERMISSION_DENIED: it is not allowed, with what is and what to do. Those of the system:
// it cannot be found.
absl::StatusOr<std::string> AllowedPlugin(const std::string& path, const PluginFolders& allowed);

}  // namespace muster

#endif  // MUSTER_COMMON_PLUGINFOLDERS_PLUGIN_FOLDERS_H_
