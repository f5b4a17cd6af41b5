// Repeats work whose failure may be temporary: writing the files at the end of a job.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_ATTEMPTS_H_
#define MUSTER_WORKER_TRAIN_REPORTS_ATTEMPTS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/train/reports/session_reports.h"

namespace muster::train {

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

#endif  // MUSTER_WORKER_TRAIN_REPORTS_ATTEMPTS_H_
