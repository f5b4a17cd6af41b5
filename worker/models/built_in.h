// The models that are a part of Muster. The source file of each model describes the model.
#ifndef MUSTER_WORKER_MODELS_BUILT_IN_H_
#define MUSTER_WORKER_MODELS_BUILT_IN_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: valid, with its defaults (common/jobspec).
std::unique_ptr<Model> CreateConvnet(const v1::ConvnetSpec& spec, uint64_t seed);
std::unique_ptr<Model> CreateGpt2(const v1::Gpt2Spec& spec, uint64_t seed);
std::unique_ptr<Model> CreateLlama(const v1::LlamaSpec& spec, uint64_t seed);
std::unique_ptr<Model> CreateMlp(const v1::MlpSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_BUILT_IN_H_
