// A multi-layer perceptron: Linear and ReLU in turn, a Linear to the classes at the end. Weights as
// in torch.nn.Linear ([out, in], names layers.<i>.weight and .bias), initialised alike.
#ifndef MUSTER_WORKER_MODELS_MLP_H_
#define MUSTER_WORKER_MODELS_MLP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "worker/models/model.h"

namespace muster::models {

// Options: inputs, hidden (a list), classes.
absl::StatusOr<std::unique_ptr<Model>> CreateMlp(const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_MLP_H_
