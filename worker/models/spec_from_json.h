// Models from JSON, for tests and for muster-logits.
#ifndef MUSTER_WORKER_MODELS_SPEC_FROM_JSON_H_
#define MUSTER_WORKER_MODELS_SPEC_FROM_JSON_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// `model: {KIND: OPTIONS}` of a job file, with its defaults; its rules are not checked.
// Errors: INVALID_ARGUMENT: no such kind, or options that it does not have.
absl::StatusOr<v1::ModelSpec> SpecFromJson(const std::string& kind, const nlohmann::json& options);

// The same from a text that is known to be valid.
v1::ModelSpec SpecFromText(const std::string& kind, const std::string& options);

// Errors: as above, and those of models::Create.
absl::StatusOr<std::unique_ptr<Model>> CreateFromJson(const std::string& kind,
                                                      const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SPEC_FROM_JSON_H_
