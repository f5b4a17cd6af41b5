// The config.json of a model's folder.
#ifndef MUSTER_COMMON_MODELFOLDER_CONFIG_H_
#define MUSTER_COMMON_MODELFOLDER_CONFIG_H_

#include <string>

#include "common/safetensors/safetensors.h"

namespace muster::modelfolder {

// `config`: the model's own config.json. `source`: that of the folder from which the model's first
// weights came, or anything else. If both describe the same kind of model, the source's members
// that the model's own config does not have (or has as null) are kept, such as the numbers of
// special tokens. `dtype` becomes that of the tensors. Empty if `config` is not a JSON object.
std::string FolderConfig(const std::string& config, const std::string& source,
                         safetensors::DType dtype);

}  // namespace muster::modelfolder

#endif  // MUSTER_COMMON_MODELFOLDER_CONFIG_H_
