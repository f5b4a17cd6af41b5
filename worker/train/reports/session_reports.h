// The reports of a session: events and progress. One rank reports the events of the whole job. Each
// rank reports its own progress.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_
#define MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_state.h"

namespace muster::train {

// Threading: the session's thread. Any thread may call Report and leader.
class SessionReports {
 public:
  // Both must outlive this object.
  SessionReports(int64_t rank, EventSink* events, const SessionState* session_state)
      : rank_(rank), events_(events), session_state_(session_state) {}

  // True on the rank that reports the events which are the same on all ranks.
  bool leader() const { return rank_ == 0; }
  // Reports an event that is the same on all ranks.
  void Report(const Event& event) const {
    if (leader()) events_->Report(event);
  }
  // Reports an event of this rank.
  void ReportOfRank(const Event& event) const { events_->Report(event); }
  // Reports the current work of this rank. `doing` has static lifetime.
  void Progress(const char* doing) const {
    events_->Progress(session_state_->step, session_state_->stage, doing);
  }

 private:
  const int64_t rank_;
  EventSink* const events_;
  const SessionState* const session_state_;
};

// Repeats work after a failure that may be temporary: writing the files at the end of a job.
class Attempts {
 public:
  static constexpr int kMost = 3;

  // `pause`: the time between two attempts. `sleep`: waits for the given time.
  Attempts(absl::Duration pause, const SessionReports* reports,
           std::function<void(absl::Duration)> sleep);

  // Decides whether failed work is tried again, and waits for the pause before it returns true.
  // `attempt`: the number of failures so far, from 1. `error` is the same on all ranks. Only errors
  // with a cause that a person may remove are tried again: a full disk (RESOURCE_EXHAUSTED) or a
  // disk fault (INTERNAL). `doing` has static lifetime, for example "saving a checkpoint".
  bool TryAgain(const absl::Status& error, int attempt, const char* doing) const;

 private:
  const absl::Duration pause_;
  const SessionReports* const reports_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_SESSION_REPORTS_H_
