// What happened to a job beyond its steps, for people and programs.
#ifndef MUSTER_COORDINATOR_JOBS_EVENTS_H_
#define MUSTER_COORDINATOR_JOBS_EVENTS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The number of newest events that are kept for each job.
inline constexpr size_t kKeptEvents = 50;

// Adds an event to job->events, of the job's current generation, and of its current step unless
// another one is given. `reason` is a stable code in UPPER_SNAKE_CASE; `message` is a sentence for
// people, without the job's name and without a full stop. The caller marks the job as changed; each
// event is stored once and written to the daemon's log.
void AddEvent(Job* job, absl::Time now, const std::string& reason, const std::string& message,
              std::optional<uint64_t> step = std::nullopt);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_EVENTS_H_
