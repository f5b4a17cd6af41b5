// How commands and stages save a checkpoint.
#ifndef MUSTER_WORKER_TRAIN_SAVE_SAVER_H_
#define MUSTER_WORKER_TRAIN_SAVE_SAVER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

// BestCheckpoint (session/best_checkpoint.h) implements it with Saving (saving.h), whose methods of
// the same names have the same errors. All methods are collectives.
class Saver {
 public:
  virtual ~Saver() = default;

  // The checkpoint, or why its files could not be written. Such an error is already reported, and
  // it is no error of the session.
  using Saved = absl::StatusOr<CheckpointWritten>;
  // Called at most once, with the end of a save.
  using Told = std::function<void(const Saved& saved)>;

  // Training continues after it. `command` asked for it; 0: none did.
  virtual absl::Status Save(int64_t command, Told told) = 0;
  // Training does not continue after it.
  virtual absl::StatusOr<Saved> SaveLast() = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_SAVER_H_
