// Llama (Touvron et al. 2023) as in Hugging Face's LlamaForCausalLM: names, layouts,
// initialisation. Without biases, dropout and scaled rotary positions.
#ifndef MUSTER_WORKER_MODELS_LLAMA_H_
#define MUSTER_WORKER_MODELS_LLAMA_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: with its defaults, and valid (common/jobspec).
std::unique_ptr<Model> CreateLlama(const v1::LlamaSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LLAMA_H_
