// What is tried a second and a third time: writing the files at the end of a job.
#ifndef MUSTER_WORKER_TRAIN_ATTEMPTS_H_
#define MUSTER_WORKER_TRAIN_ATTEMPTS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/train/session_reports.h"

namespace muster::train {

class Attempts {
 public:
  static constexpr int kMost = 3;

  // pause: between two of them. sleep: waits for so long.
  Attempts(absl::Duration pause, const SessionReports* reports,
           std::function<void(absl::Duration)> sleep);

  // Whether to try again what failed for the `attempt`th time, from 1, with `error`, which is the
  // same on all ranks; where it says so the pause is over. Only what somebody may mend meanwhile is
  // tried again: a disk that is full (RESOURCE_EXHAUSTED) or has a fault (INTERNAL). doing: of
  // static lifetime, "saving a checkpoint".
  bool TryAgain(const absl::Status& error, int attempt, const char* doing) const;

 private:
  const absl::Duration pause_;
  const SessionReports* const reports_;
  const std::function<void(absl::Duration)> sleep_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ATTEMPTS_H_
