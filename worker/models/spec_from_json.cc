#include "worker/models/spec_from_json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"
#include "common/status/status.h"
#include "worker/models/registry.h"

namespace muster::models {

absl::StatusOr<v1::ModelSpec> SpecFromJson(const std::string& kind, const nlohmann::json& options) {
  v1::JobSpec job;
  const nlohmann::json file = {{"model", {{kind, options}}}};
  const auto read = google::protobuf::util::JsonStringToMessage(file.dump(), &job);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.", kind, ": ", read.message().as_string()));
  }
  return jobspec::ResolveDefaults(job).model();
}

v1::ModelSpec SpecFromText(const std::string& kind, const std::string& options) {
  return *SpecFromJson(kind, nlohmann::json::parse(options));
}

absl::StatusOr<std::unique_ptr<Model>> CreateFromJson(const std::string& kind,
                                                      const nlohmann::json& options,
                                                      uint64_t seed) {
  ASSIGN_OR_RETURN(const v1::ModelSpec spec, SpecFromJson(kind, options));
  return Create(spec, seed);
}

}  // namespace muster::models
