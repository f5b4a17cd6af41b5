#include "coordinator/jobs/job.h"

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

}  // namespace muster::jobs
