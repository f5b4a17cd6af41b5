// Llama (Touvron et al. 2023) as in Hugging Face's LlamaForCausalLM: names, layouts, initialisation. Without biases,
// dropout and scaled rotary positions.
#ifndef MUSTER_WORKER_MODELS_LLAMA_H_
#define MUSTER_WORKER_MODELS_LLAMA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "worker/models/model.h"

namespace muster::models {

// Options: vocab_size, context, layers, heads, width, inner; kv_heads (heads), rope_theta (10000), norm_eps (1e-5),
// tied (false).
absl::StatusOr<std::unique_ptr<Model>> CreateLlama(const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LLAMA_H_
