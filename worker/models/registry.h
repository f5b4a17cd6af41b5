// All models by kind. To add one: write its file and add a line to the table in registry.cc.
#ifndef MUSTER_WORKER_MODELS_REGISTRY_H_
#define MUSTER_WORKER_MODELS_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "worker/models/model.h"

namespace muster::models {

// Makes a model with fresh values, which depend only on (seed, parameter name). `options` is the
// object of the job file (`{"vocab_size": 256, ...}`), numbers, booleans and lists as JSON.
// Errors: INVALID_ARGUMENT naming the kind, or every bad option with what is allowed.
absl::StatusOr<std::unique_ptr<Model>> Create(const std::string& kind,
                                              const nlohmann::json& options, uint64_t seed);

// The kinds that Create knows.
std::vector<std::string> Kinds();

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_REGISTRY_H_
