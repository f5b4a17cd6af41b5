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

// Adds what a worker said as an event, unless the job has the same one: with the same reason, and
// the same message but for its numbers; of predictions that were written, with the very same
// message. Ignores a reason that is no such code; cuts a message that is longer than 1000 bytes.
void TakeNotice(Job* job, const std::string& reason, const std::string& message, uint64_t step,
                absl::Time now);

// Whether two texts are the same but for their numbers, as the same failure at another step has.
bool SameButForNumbers(std::string a, std::string b);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_EVENTS_H_
