// Reads what config.json of a Hugging Face folder says about a language model. Pure. The sizes of
// the model must be there; the defaults of other keys are those of transformers.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_CONFIG_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_CONFIG_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/language/decoder.h"

namespace muster::models {

// A GPT-2, or one of the models that are a decoder.
using HuggingFaceShape = std::variant<v1::Gpt2Spec, DecoderShape>;

// config: the contents of config.json. context: the tokens of a sample; 0: as many as the model has
// positions. INVALID_ARGUMENT with every problem: another kind of model, or a property that would
// make the model compute something else.
absl::StatusOr<HuggingFaceShape> ReadHuggingFaceConfig(const nlohmann::json& config,
                                                       int64_t context);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_HUGGING_FACE_CONFIG_H_
