// Events of a job besides its steps, for people and programs.
#ifndef MUSTER_COORDINATOR_JOBS_EVENTS_H_
#define MUSTER_COORDINATOR_JOBS_EVENTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The number of newest events of each kind that are kept for a job. Texts of the model (reason
// kSampleReason) are a kind of their own: the texts of a long job do not replace its failures.
inline constexpr size_t kKeptEvents = 50;

// The reason of an event that holds a text of the model.
inline constexpr char kSampleReason[] = "SAMPLE";

// Removes the oldest event of the last event's kind if more than kKeptEvents are of this kind. The
// caller has added the last event.
void DropOldest(std::vector<JobEvent>* events);

// Adds an event of the job's current generation to job->events. Its step is the job's current step
// if `step` is absent. `reason` is a stable code in UPPER_SNAKE_CASE. `message` is a sentence for
// people, without the job's name and without a full stop. The caller marks the job as changed. Each
// event is stored once and written to the daemon's log.
void AddEvent(Job* job, absl::Time now, const std::string& reason, const std::string& message,
              std::optional<uint64_t> step = std::nullopt);

// Adds a worker's notice as an event, unless the job has an event with the same reason and message.
// Numbers in messages are not compared, except for predictions that were written. A SAMPLE is of
// its step. Ignores a reason that is no such code. Cuts a message after 1000 bytes.
void TakeNotice(Job* job, const std::string& reason, const std::string& message, uint64_t step,
                absl::Time now);

// Returns whether two texts differ only in their numbers, like one failure at two steps.
bool SameButForNumbers(std::string a, std::string b);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_EVENTS_H_
