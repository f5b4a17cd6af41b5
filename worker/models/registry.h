// All models by kind. A new model needs a source file, a declaration in built_in.h, a message in
// job_spec.proto (ModelSpec.kind) and a case in registry.cc.
#ifndef MUSTER_WORKER_MODELS_REGISTRY_H_
#define MUSTER_WORKER_MODELS_REGISTRY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes a model with initial values, which depend only on (seed, parameter name). Does not read the
// `weights` of spec. spec: valid, with its defaults (common/jobspec). Errors: INVALID_ARGUMENT if
// no kind of model is set; those of CreateTorchscript, CreateExported and CreatePlugin.
absl::StatusOr<std::unique_ptr<Model>> Create(const v1::ModelSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_REGISTRY_H_
