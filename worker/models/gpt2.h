// GPT-2 (Radford et al. 2019) as in Hugging Face's GPT2LMHeadModel: names, layouts, initialisation.
#ifndef MUSTER_WORKER_MODELS_GPT2_H_
#define MUSTER_WORKER_MODELS_GPT2_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: with its defaults, and valid (common/jobspec).
std::unique_ptr<Model> CreateGpt2(const v1::Gpt2Spec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_GPT2_H_
