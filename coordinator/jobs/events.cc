#include "coordinator/jobs/events.h"

namespace muster::jobs {

void AddEvent(Job* job, absl::Time now, const std::string& reason, const std::string& message,
              std::optional<uint64_t> step) {
  job->events.push_back({.number = job->newest_event() + 1,
                         .time = now,
                         .generation = job->generation,
                         .step = step.value_or(job->step),
                         .reason = reason,
                         .message = message});
  if (job->events.size() > kKeptEvents) job->events.erase(job->events.begin());
}

}  // namespace muster::jobs
