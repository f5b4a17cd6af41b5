// Directories and files that only their owner may read, with any umask.
#ifndef MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_
#define MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace muster::files {

// Makes a missing `path` and its parents, and gives `path` the mode 0700. `own`: patterns
// (common/glob) of names of files that only such a directory contains. Files of these names get the
// mode 0600.
//
// An existing directory with other rights gets 0700 only if it is empty or has a file of `own`.
// Otherwise others might use it, such as /tmp. Other errors than the following are the file
// system's. FAILED_PRECONDITION (the message says what to do):
// - The directory has other rights, and may be one that others use.
// - The directory belongs to another user, who could read and replace its files. This is an error
//   for root, too.
absl::Status MakePrivateDirectory(const std::string& path, const std::vector<std::string>& own);

// WriteAtomically (files.h) for a file with the mode 0600.
absl::Status WritePrivately(const std::string& path, const std::string& contents);

// Makes an empty file with the mode 0600, or gives an existing file this mode. Another program
// appends to the file. FAILED_PRECONDITION: `path` is something else than a file.
absl::Status MakePrivateLog(const std::string& path);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_
