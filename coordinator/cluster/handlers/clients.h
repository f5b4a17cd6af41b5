// Calls of clients about jobs. coordinator/cluster/cluster.h says what each does, and its errors.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_CLIENTS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_CLIENTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// Why a command is refused for this job; OK: it is not.
using CommandCheck = std::function<absl::Status(const jobs::Job& job)>;

absl::StatusOr<std::string> Submit(Turn& turn, const Submission& submission);
absl::StatusOr<uint64_t> Command(Turn& turn, const CommandRequest& request,
                                 const CommandCheck& check);
absl::StatusOr<uint64_t> NextAttempt(Turn& turn, const CommandRequest& request);
absl::StatusOr<uint64_t> Cancel(Turn& turn, const CommandRequest& request);
absl::StatusOr<std::string> Delete(Turn& turn, const DeleteRequest& request);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_CLIENTS_H_
