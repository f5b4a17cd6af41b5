// Whether there is room for one more: the limits of what clients add. Errors: RESOURCE_EXHAUSTED.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_ROOM_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_ROOM_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/cluster/parts/jobs.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/limits/limits.h"

namespace muster::cluster {

// TOO_MANY_OPEN_JOBS.
absl::Status CheckOpenJobs(const Jobs& jobs, const Limits& limits);
// Also TOO_MANY_JOBS, JOBS_TOO_LARGE.
absl::Status CheckRoomForJob(const Jobs& jobs, const Limits& limits, const std::string& spec);
// For a command of the job: TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS, COMMANDS_TOO_LARGE.
absl::Status CheckRoomFor(const Limits& limits, const jobs::Job& job,
                          const commands::Command& command);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_ROOM_H_
