// Reads what config.json of a Hugging Face folder says about a language model. Pure. The sizes of
// the model must be there; the defaults of other keys are those of transformers.
#ifndef MUSTER_COMMON_HUGGINGFACE_CONFIG_H_
#define MUSTER_COMMON_HUGGINGFACE_CONFIG_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "common/huggingface/decoder_shape.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::huggingface {

// A GPT-2, or one of the models that are a decoder.
using ModelShape = std::variant<v1::Gpt2Spec, DecoderShape>;

// config: the contents of config.json. context: the tokens of a sample; 0: as many as the model has
// positions. vocab_size: the vocabulary in place of that of config.json, unless it is 0.
// INVALID_ARGUMENT with every problem: another kind of model, or a property that would make the
// model compute something else.
absl::StatusOr<ModelShape> ReadConfig(const nlohmann::json& config, int64_t context,
                                      int64_t vocab_size = 0);

}  // namespace muster::huggingface

#endif  // MUSTER_COMMON_HUGGINGFACE_CONFIG_H_
