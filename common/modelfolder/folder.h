// The files of a model's folder, and its final name.
#ifndef MUSTER_COMMON_MODELFOLDER_FOLDER_H_
#define MUSTER_COMMON_MODELFOLDER_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

namespace muster::modelfolder {

inline constexpr char kConfigName[] = "config.json";

// Whether a file of this name belongs to a model's folder: weights, their index, config.json, and
// what the tokenizer and the generation of text need.
bool IsModelFile(const std::string& name);

// Whether a model may get the name `path` (absolute): there is nothing, or an empty folder, or,
// with `overwrite`, a folder that contains nothing but regular files of a model. ALREADY_EXISTS:
// there is something, and `overwrite` is not set. FAILED_PRECONDITION: it is no folder, or contains
// something else, which the message names.
absl::Status CheckTarget(const std::string& path, bool overwrite);

// Gives the folder `temporary`, whose files are complete and synced (its names need not be), the
// name `path`; an older folder is then removed. Afterwards, also after a crash, `path` is the old
// folder or the new one. Errors: those of CheckTarget; UNIMPLEMENTED: there is an older folder, and
// the file system cannot exchange two names. After an error the new folder is still `temporary`,
// unless only the sync of its parent failed. What cannot be removed of the older folder stays under
// the temporary name.
absl::Status PlaceFolder(const std::string& temporary, const std::string& path, bool overwrite,
                         files::Disk& disk = files::Disk::Real());

struct CopiedTokenizer {
  std::vector<std::string> files;
  std::vector<std::string> unreadable;  // "<name>: <why>"
  bool has_tokenizer = false;           // not only settings of the generation of text
};
// Copies the files of the tokenizer and of the generation of text that `from` has, and syncs them.
// The folder may be missing. What cannot be read there is no error.
absl::StatusOr<CopiedTokenizer> CopyTokenizer(const std::string& from, const std::string& to,
                                              files::Disk& disk = files::Disk::Real());

// Removes a folder of files, if it exists.
absl::Status RemoveFolder(const std::string& path);

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_FOLDER_H_
