// GPT-2 (Radford et al. 2019): names, layouts, initialisation of Hugging Face's GPT2LMHeadModel.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_GPT2_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_GPT2_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/language/language_model.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes the model under another identity than CreateGpt2 does (built_in.h). spec: valid, with its
// defaults. kFewer: a weights file may have more positions, of which the model takes the first.
enum class Positions { kAll, kFewer };
std::unique_ptr<Model> CreateGpt2As(ModelIdentity identity, const v1::Gpt2Spec& spec,
                                    Positions positions, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_GPT2_H_
