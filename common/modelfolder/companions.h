// What a model's folder contains besides the weights: their index, config.json, and the files of
// the tokenizer.
#ifndef MUSTER_COMMON_MODELFOLDER_COMPANIONS_H_
#define MUSTER_COMMON_MODELFOLDER_COMPANIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/safetensors/safetensors.h"
#include "common/tokenizer/source.h"

namespace muster::modelfolder {

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

#endif  // MUSTER_COMMON_MODELFOLDER_COMPANIONS_H_
