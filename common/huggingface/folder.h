// A language model's folder of Hugging Face: config.json, weights in safetensors and a tokenizer.
#ifndef MUSTER_COMMON_HUGGINGFACE_FOLDER_H_
#define MUSTER_COMMON_HUGGINGFACE_FOLDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/huggingface/config.h"

namespace muster::huggingface {

struct Description {
  std::string text;  // the contents of config.json, which is valid JSON
  ModelShape shape;
};

// Reads config.json of the folder; context and vocab_size: as in ReadConfig. The weights must be
// there, and are not opened. Errors name the file: those of opening config.json, NOT_FOUND for a
// folder without a model, INVALID_ARGUMENT for a model that Muster does not build. A wrong
// `context` is INVALID_ARGUMENT with a text that begins with "model.context".
absl::StatusOr<Description> ReadFolder(const std::string& folder, int64_t context,
                                       int64_t vocab_size);

}  // namespace muster::huggingface

#endif  // MUSTER_COMMON_HUGGINGFACE_FOLDER_H_
