#include "coordinator/jobs/job.h"

#include <algorithm>
#include <cstdint>

namespace muster::jobs {

const char* Name(State state) {
  switch (state) {
    case State::kQueued:
      return "QUEUED";
    case State::kStarting:
      return "STARTING";
    case State::kRunning:
      return "RUNNING";
    case State::kRecovering:
      return "RECOVERING";
    case State::kStopping:
      return "STOPPING";
    case State::kSucceeded:
      return "SUCCEEDED";
    case State::kFailed:
      return "FAILED";
    case State::kCancelled:
      return "CANCELLED";
    case State::kPaused:
      return "PAUSED";
  }
  return "UNKNOWN";
}

uint64_t TotalSteps(const JobFields& job) {
  const uint64_t told = job.fit_steps > 0 ? job.fit_steps : job.plan.total_steps;
  const bool complete = job.state == State::kSucceeded && job.ended_early.empty();
  return complete ? std::min(told, job.step) : told;
}

}  // namespace muster::jobs
