// GPT-2 (Radford et al. 2019) as in Hugging Face's GPT2LMHeadModel: names, layouts, initialisation.
#ifndef MUSTER_WORKER_MODELS_GPT2_H_
#define MUSTER_WORKER_MODELS_GPT2_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "worker/models/model.h"

namespace muster::models {

// Options: vocab_size, context, layers, heads, width; inner (4 * width), dropout (0), tied (true).
absl::StatusOr<std::unique_ptr<Model>> CreateGpt2(const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_GPT2_H_
