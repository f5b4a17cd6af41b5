// Directories and files that only their owner may read, whatever the umask is.
#ifndef MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_
#define MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace muster::files {

// Makes `path`, and its parents, if it is missing, and gives it the mode 0700. `own`: patterns of
// the names of files that only such a directory contains (common/glob); files of these names get
// the mode 0600.
//
// An existing directory with other rights gets 0700 only if it is empty or has a file of `own`:
// otherwise it might be one that others use, such as /tmp. FAILED_PRECONDITION: it is such a
// directory, or it belongs to another user, who could read and replace what is in it, also if this
// process is root's; the message says what to do. Other errors: those of the file system.
absl::Status MakePrivateDirectory(const std::string& path, const std::vector<std::string>& own);

// WriteAtomically (files.h) for a file with the mode 0600.
absl::Status WritePrivately(const std::string& path, const std::string& contents);

// Makes an empty file with the mode 0600, or gives an existing one this mode, for another program
// that appends to it. FAILED_PRECONDITION: there is something else.
absl::Status MakePrivateLog(const std::string& path);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_PRIVATE_DIRECTORY_H_
