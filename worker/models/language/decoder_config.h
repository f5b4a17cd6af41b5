// Reads the config.json of a model of Hugging Face that is a decoder (decoder.h). Pure.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_DECODER_CONFIG_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_DECODER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/problems/problems.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/decoder.h"

namespace muster::models {

// Returns the values of model_type that ReadDecoderConfig knows.
std::vector<std::string> DecoderTypes();

// config: a JSON object whose model_type is `type`. context: the tokens of a sample; 0: as many as
// the model has positions. nullopt: another kind of model. Adds each property that would make the
// model compute something else to `problems`; the result then has no meaning.
std::optional<DecoderShape> ReadDecoderConfig(const std::string& type, const nlohmann::json& config,
                                              int64_t context, Problems* problems);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_DECODER_CONFIG_H_
