// What a session reports: events, of which one rank reports those of the whole job, and the
// progress of each rank.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_
#define MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_state.h"

namespace muster::train {

// Threading: the session's thread; Report and leader also any other.
class SessionReports {
 public:
  // Both outlive it.
  SessionReports(int64_t rank, EventSink* events, const SessionState* session_state)
      : rank_(rank), events_(events), session_state_(session_state) {}

  // True on the rank that reports the events that are the same on all ranks.
  bool leader() const { return rank_ == 0; }
  // Reports an event that is the same on all ranks.
  void Report(const Event& event) const {
    if (leader()) events_->Report(event);
  }
  // Reports an event of this rank.
  void ReportOfRank(const Event& event) const { events_->Report(event); }
  // Reports where this rank is. `doing` has static lifetime.
  void Progress(const char* doing) const {
    events_->Progress(session_state_->step, session_state_->stage, doing);
  }

 private:
  const int64_t rank_;
  EventSink* const events_;
  const SessionState* const session_state_;
};

// Repeats work whose failure may be temporary: writing the files at the end of a job.
class Attempts {
 public:
  static constexpr int kMost = 3;

  // `pause`: between two attempts. `sleep`: waits for the given time.
  Attempts(absl::Duration pause, const SessionReports* reports,
           std::function<void(absl::Duration)> sleep);

  // Decides whether work is tried again that failed for the `attempt`th time (counted from 1) with
  // `error`, which is the same on all ranks. It waits for the pause before it returns true. Only
  // errors whose cause somebody may remove in the meantime are tried again: a disk that is full
  // (RESOURCE_EXHAUSTED) or has a fault (INTERNAL). `doing` has static lifetime, for example
  // "saving a checkpoint".
  bool TryAgain(const absl::Status& error, int attempt, const char* doing) const;

 private:
  const absl::Duration pause_;
  const SessionReports* const reports_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_
