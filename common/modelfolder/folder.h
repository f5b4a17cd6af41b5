// The files of a model's folder, and its final name.
#ifndef MUSTER_COMMON_MODELFOLDER_FOLDER_H_
#define MUSTER_COMMON_MODELFOLDER_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/safetensors/safetensors.h"
#include "common/tokenizer/source.h"

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

// `config`: the model's own config.json. `source`: that of the folder from which the model's first
// weights came, or anything else. If both describe the same kind of model, the source's members
// that the model's own config does not have (or has as null) are kept, such as the numbers of
// special tokens. `dtype` becomes that of the tensors. Empty if `config` is not a JSON object.
std::string FolderConfig(const std::string& config, const std::string& source,
                         safetensors::DType dtype);

struct CompanionOptions {
  std::string index;   // FolderPlan's
  std::string config;  // the model's own config.json; may be empty
  // The file from which the model's first weights came; may be empty. The files of the tokenizer
  // are copied from its folder, and FolderConfig uses the config.json there.
  std::string first_weights;
  // What made the tokens of the training data. Its file is copied if it is still the same and if
  // the folder of the first weights has no tokenizer.
  tokenizer::Source tokenizer;
  safetensors::DType dtype = safetensors::DType::kF32;
};

// What a model's folder contains besides the weights: their index, config.json, and the files of
// the tokenizer.
struct Companions {
  std::vector<std::string> files;
  uint64_t bytes = 0;
  // What there is not, and why; sentences for people.
  std::vector<std::string> notes;
};

// Writes and syncs new files in `folder`.
absl::StatusOr<Companions> WriteCompanions(const CompanionOptions& options,
                                           const std::string& folder,
                                           files::Disk& disk = files::Disk::Real());

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_FOLDER_H_
