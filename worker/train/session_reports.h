// What a session tells of itself: events, which one rank tells for the job, and where each rank is.
#ifndef MUSTER_WORKER_TRAIN_SESSION_REPORTS_H_
#define MUSTER_WORKER_TRAIN_SESSION_REPORTS_H_

#include <cstdint>

#include "worker/train/outside.h"
#include "worker/train/standing.h"

namespace muster::train {

// Threading: the session's thread.
class SessionReports {
 public:
  // Both outlive it.
  SessionReports(int64_t rank, EventSink* events, const Standing* standing)
      : rank_(rank), events_(events), standing_(standing) {}

  // This rank tells what is the same on all of them.
  bool leader() const { return rank_ == 0; }
  // What is the same on all ranks.
  void Report(const Event& event) const {
    if (leader()) events_->Report(event);
  }
  // What each rank tells for itself.
  void ReportOfRank(const Event& event) const { events_->Report(event); }
  // Where this rank is. doing: of static lifetime.
  void Progress(const char* doing) const {
    events_->Progress(standing_->step, standing_->stage, doing);
  }

 private:
  const int64_t rank_;
  EventSink* const events_;
  const Standing* const standing_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_REPORTS_H_
