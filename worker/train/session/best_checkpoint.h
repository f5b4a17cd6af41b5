// The best checkpoint of a session: which one it is after each validation pass of a fit stage, and
// what happens if it cannot be written. improvement.h has the rules.
#ifndef MUSTER_WORKER_TRAIN_SESSION_BEST_CHECKPOINT_H_
#define MUSTER_WORKER_TRAIN_SESSION_BEST_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/validation_record.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/save/saving.h"
#include "worker/train/session/session_parts.h"

namespace muster::train {

// A collective at the start of a session: if the best checkpoint that the state names is there,
// tells so; otherwise forgets it.
absl::Status FindBest(const Checkpoints& checkpoints, const SessionParts& parts,
                      const SessionReports& reports, SessionState* state);

// Saves as Saving does, and keeps up which checkpoint is the best one. Threading: the session's
// thread, except for Heard.
class BestCheckpoint : public Saver {
 public:
  // All outlive it. It changes the validations of `session_state`.
  struct Parts {
    int64_t generation;
    Saving* saving;                  // null: the job has no checkpoints
    const Checkpoints* checkpoints;  // likewise
    Background* background;
    SessionState* session_state;
  };
  explicit BestCheckpoint(const Parts& parts) : parts_(parts) {}

  struct Judged {
    bool best = false;  // the checkpoint of this step becomes the best one, if it can be written
    std::string stop;   // why the stage ends; empty: it does not
  };
  // A collective after a validation pass of this stage. INVALID_ARGUMENT: a rule needs a metric
  // that the pass does not give; then a last checkpoint was saved.
  absl::StatusOr<Judged> Judge(const FitUntil& stage, const v1::Evaluation& evaluation);

  // The checkpoint of this step is the best one: saves it, in the background.
  absl::Status SaveBest();
  // Called with the end of a save of the best checkpoint, also of one that SaveBest did not begin.
  // After an error the one before is the best one again.
  void Heard(const absl::Status& saved);

  // As Saving's. If the checkpoint of this step was to become the best one and could not be
  // written, this save tries it again.
  absl::Status Save(int64_t command, Told told) override;
  absl::StatusOr<Saved> SaveLast() override;

  // The directory of the best checkpoint. NOT_FOUND: there is none.
  absl::StatusOr<std::string> Path() const;

 private:
  // Called before each save. True: it tries again to write the best checkpoint, which is of this
  // step.
  absl::StatusOr<bool> Again();

  const Parts parts_;
  // The best checkpoint before the one that is being written.
  std::optional<manifest::ValidationRecord::Best> former_;
  // The newest pass that would have been the best one, but its checkpoint could not be written.
  std::optional<manifest::ValidationRecord::Best> unsaved_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_BEST_CHECKPOINT_H_
