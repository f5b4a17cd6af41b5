// The files of a model's folder, and its final name.
#ifndef MUSTER_COMMON_MODELFOLDER_FOLDER_H_
#define MUSTER_COMMON_MODELFOLDER_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/safetensors/safetensors.h"
#include "common/tokenizer/source.h"

namespace muster::modelfolder {

inline constexpr char kConfigName[] = "config.json";

// Returns whether a file of this name belongs to a model's folder. These are weights, their index,
// config.json, and the files for the tokenizer and the generation of text.
bool IsModelFile(const std::string& name);

// Checks whether a model may get the name `path` (absolute). There must be nothing, or an empty
// folder. With `overwrite`, a folder with only regular files of a model is allowed, too.
// ALREADY_EXISTS: something is there, and `overwrite` is not set. FAILED_PRECONDITION: `path` is
// not a folder, or contains something else, which the message names.
absl::Status CheckTarget(const std::string& path, bool overwrite);

// Gives the folder `temporary` the name `path`, and removes an older folder. The files in
// `temporary` are complete and synced (its names need not be). Afterwards, also after a crash,
// `path` is the old folder or the new one. After an error the new folder is still `temporary`,
// unless only the sync of its parent failed. Files of the older folder that cannot be removed stay
// under the temporary name. Errors: those of CheckTarget; UNIMPLEMENTED: there is an older folder,
// and the file system cannot exchange two names.
absl::Status PlaceFolder(const std::string& temporary, const std::string& path, bool overwrite,
                         files::Disk& disk = files::Disk::Real());

struct CopiedTokenizer {
  std::vector<std::string> files;
  std::vector<std::string> unreadable;  // "<name>: <why>"
  bool has_tokenizer = false;           // and not only settings of the generation of text
};
// Copies the files in `from` for the tokenizer and the generation of text, and syncs them. `from`
// may be missing. Files that cannot be read are no error.
absl::StatusOr<CopiedTokenizer> CopyTokenizer(const std::string& from, const std::string& to,
                                              files::Disk& disk = files::Disk::Real());

// Returns the contents of the files that CopyTokenizer would copy, by name. `from` may be missing.
// Errors: those of reading a file.
absl::StatusOr<std::map<std::string, std::string>> ReadTokenizer(const std::string& from);

// Removes a folder of files, if it exists.
absl::Status RemoveFolder(const std::string& path);

// Returns the config.json of a folder: `config`, the model's own, with members of `source`.
// `source` is the config.json beside the model's first weights, or anything else. If both describe
// the same kind of model, `source` provides the members that `config` does not have (or has as
// null), such as the numbers of special tokens. `dtype` becomes that of the tensors. Empty if
// `config` is not a JSON object.
std::string FolderConfig(const std::string& config, const std::string& source,
                         safetensors::DType dtype);

struct CompanionOptions {
  std::string index;   // FolderPlan's
  std::string config;  // the model's own config.json; may be empty
  // The file with the model's first weights; may be empty. The files of the tokenizer are copied
  // from its folder, and FolderConfig uses the config.json there.
  std::string first_weights;
  // The tokenizer of the training data. Its file is copied if it is unchanged and the folder of the
  // first weights has no tokenizer.
  tokenizer::Source tokenizer;
  safetensors::DType dtype = safetensors::DType::kF32;
};

// The files in a model's folder besides the weights: their index, config.json, and the files of the
// tokenizer.
struct Companions {
  std::vector<std::string> files;
  uint64_t bytes = 0;
  // Sentences for people: which files are absent, and why.
  std::vector<std::string> notes;
};

// Writes and syncs new files in `folder`.
absl::StatusOr<Companions> WriteCompanions(const CompanionOptions& options,
                                           const std::string& folder,
                                           files::Disk& disk = files::Disk::Real());

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_FOLDER_H_
