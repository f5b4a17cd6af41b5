// The command for a job's workers that a request for a sample becomes. Pure.
#ifndef MUSTER_COORDINATOR_SERVICE_SAMPLE_COMMAND_H_
#define MUSTER_COORDINATOR_SERVICE_SAMPLE_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// The number of new tokens if the request does not set it and there is room for them.
inline constexpr uint32_t kUsualNewTokens = 64;

// Returns the prompt in tokens and the number of new tokens. `model`: a model that can generate
// (CheckNeeds), with its defaults. `job_id`: for errors. Errors, as of ControlService.Sample:
// FAILED_PRECONDITION NO_TOKENIZER, INVALID_ARGUMENT SAMPLE_INVALID. The workers check the same
// again (models::CheckGeneration).
absl::StatusOr<v1::SampleCommand> SampleCommandOf(const v1::SampleRequest& request,
                                                  const v1::ModelSpec& model,
                                                  const std::string& job_id);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SAMPLE_COMMAND_H_
