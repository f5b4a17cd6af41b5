// Events of a job besides its steps, for people and programs.
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

// Adds an event of the job's current generation to job->events. Its step is the job's current step
// if `step` is absent. `reason` is a stable code in UPPER_SNAKE_CASE. `message` is a sentence for
// people, without the job's name and without a full stop. The caller marks the job as changed. Each
// event is stored once and written to the daemon's log.
void AddEvent(Job* job, absl::Time now, const std::string& reason, const std::string& message,
              std::optional<uint64_t> step = std::nullopt);

// Adds a worker's notice as an event, unless the job has an event with the same reason and message.
// Numbers in messages are not compared, except for predictions that were written. Ignores a reason
// that is no such code. Cuts a message after 1000 bytes.
void TakeNotice(Job* job, const std::string& reason, const std::string& message, uint64_t step,
                absl::Time now);

// Returns whether two texts differ only in their numbers, like one failure at two steps.
bool SameButForNumbers(std::string a, std::string b);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_EVENTS_H_
