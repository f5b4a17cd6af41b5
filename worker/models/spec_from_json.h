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

// Returns the spec for `model: {KIND: OPTIONS}` of a job file, with its defaults. Does not check
// its rules. INVALID_ARGUMENT if there is no such kind, or the kind does not have such options.
absl::StatusOr<v1::ModelSpec> SpecFromJson(const std::string& kind, const nlohmann::json& options);

// Returns the spec from a text that is known to be valid.
v1::ModelSpec SpecFromText(const std::string& kind, const std::string& options);

// Errors: those of SpecFromJson and models::Create.
absl::StatusOr<std::unique_ptr<Model>> CreateFromJson(const std::string& kind,
                                                      const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SPEC_FROM_JSON_H_
