// A multi-layer perceptron: Linear and ReLU in turn, a Linear to the classes at the end. Weights as
// in torch.nn.Linear ([out, in], names layers.<i>.weight and .bias), initialised alike.
#ifndef MUSTER_WORKER_MODELS_MLP_H_
#define MUSTER_WORKER_MODELS_MLP_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: with its defaults, and valid (common/jobspec).
std::unique_ptr<Model> CreateMlp(const v1::MlpSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_MLP_H_
