// What is posted about a change of a job's state (docs/webhook.md). Pure.
#ifndef MUSTER_COORDINATOR_WEBHOOK_BODY_H_
#define MUSTER_COORDINATOR_WEBHOOK_BODY_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::webhook {

// Texts that need more bytes in JSON are cut.
inline constexpr size_t kLongestText = 2000;

// Less than this many bytes, whatever the texts of the job are.
inline constexpr size_t kLongestBody = 16 << 10;

// The JSON of the change that brought the job into its present state. `id`: of the delivery.
// `former`: absent for a new job.
std::string BodyOf(const std::string& id, const jobs::Job& job, std::optional<jobs::State> former,
                   absl::Time now);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_BODY_H_
