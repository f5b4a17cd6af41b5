// Reads the config.json of a model of Hugging Face that is a decoder (decoder_shape.h). Pure.
#ifndef MUSTER_COMMON_HUGGINGFACE_DECODER_CONFIG_H_
#define MUSTER_COMMON_HUGGINGFACE_DECODER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/huggingface/decoder_shape.h"
#include "common/problems/problems.h"
#include "nlohmann/json.hpp"

namespace muster::huggingface {

// Returns the values of model_type that ReadDecoderConfig knows.
std::vector<std::string> DecoderTypes();

// config: a JSON object whose model_type is `type`. context: the tokens of a sample; 0: as many as
// the model has positions. nullopt: another kind of model. Adds each property that would make the
// model compute something else to `problems`; the result then has no meaning.
std::optional<DecoderShape> ReadDecoderConfig(const std::string& type, const nlohmann::json& config,
                                              int64_t context, Problems* problems);

}  // namespace muster::huggingface

#endif  // MUSTER_COMMON_HUGGINGFACE_DECODER_CONFIG_H_
