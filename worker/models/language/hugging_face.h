// Language models from folders of Hugging Face: config.json, weights in safetensors and a tokenizer
// (docs/how-to/hugging-face.md).
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes the model that the config.json of a folder describes, with initial values. context: the
// tokens of a sample; 0: as many as the model has positions. vocab_size: the vocabulary in place of
// that of config.json, unless it is 0. Errors name the file: those of opening
// the file; INVALID_ARGUMENT: those of ReadHuggingFaceConfig.
absl::StatusOr<std::unique_ptr<Model>> CreateHuggingFace(const std::string& folder, int64_t context,
                                                         int64_t vocab_size, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_H_
