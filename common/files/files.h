// Whole files: read, write atomically. Directories.
#ifndef MUSTER_COMMON_FILES_FILES_H_
#define MUSTER_COMMON_FILES_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

namespace muster::files {

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes `path`.tmp, then fsync, rename, fsync of the directory. Afterwards, also after a crash,
// `path` has either its old contents or all of `contents`. One writer per path at a time.
absl::Status WriteAtomically(const std::string& path, const std::string& contents,
                             Disk& disk = Disk::Real());

// Moves a finished file or directory to its final name and makes the name durable.
absl::Status RenameDurably(const std::string& from, const std::string& to,
                           Disk& disk = Disk::Real());

// Makes a directory and its parents, as mkdir -p does.
absl::Status CreateDirectories(const std::string& path);

// The directory that holds `path`: "a/b" -> "a", "b" -> ".".
std::string ParentDirectory(const std::string& path);

// "a" + "b" -> "a/b".
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_FILES_H_
