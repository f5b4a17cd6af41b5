// The best checkpoint of a session: the choice after each validation pass of a fit stage, and the
// handling of a failed save. improvement.h has the rules.
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

// Reports the best checkpoint of the state at the start of a session. A best checkpoint that no
// longer exists is removed from the state. A collective.
absl::Status FindBest(const Checkpoints& checkpoints, const SessionParts& parts,
                      const SessionReports& reports, SessionState* state);

// Saves with Saving, and keeps track of the best checkpoint. Threading: the session's thread; any
// thread may call Heard.
class BestCheckpoint : public Saver {
 public:
  // All must outlive this object. It changes the validations of `session_state`.
  struct Dependencies {
    int64_t generation;
    Saving* saving;                  // null: the job has no checkpoints
    const Checkpoints* checkpoints;  // null: the same
    Background* background;
    SessionState* session_state;
  };
  explicit BestCheckpoint(const Dependencies& deps) : deps_(deps) {}

  struct Judged {
    // The checkpoint of this step becomes the best checkpoint, if its save succeeds.
    bool best = false;
    std::string stop;  // why the stage ends; empty: it continues
  };
  // Judges a validation pass of this stage. A collective. INVALID_ARGUMENT: a rule needs a metric
  // that the pass does not give. A last checkpoint is saved before this error.
  absl::StatusOr<Judged> Judge(const FitUntil& stage, const v1::Evaluation& evaluation);

  // Saves the checkpoint of this step as the best one, in the background.
  absl::Status SaveBest();
  // Called with the end of each save of the best checkpoint, even if SaveBest did not begin it.
  // After an error, the former best checkpoint is the best one again.
  void Heard(const absl::Status& saved);

  // Saving's methods. A failed save of the best checkpoint is tried again if it was of this step.
  absl::Status Save(int64_t command, Told told) override;
  absl::StatusOr<Saved> SaveLast() override;

  // Returns the directory of the best checkpoint. NOT_FOUND: there is none.
  absl::StatusOr<std::string> Path() const;

 private:
  // Called before each save. Returns true if the save tries again to write the best checkpoint,
  // which is of this step.
  absl::StatusOr<bool> Again();

  const Dependencies deps_;
  // The best checkpoint before the current save.
  std::optional<manifest::ValidationRecord::Best> former_;
  // The newest pass whose checkpoint would have been the best one, but could not be written.
  std::optional<manifest::ValidationRecord::Best> unsaved_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_BEST_CHECKPOINT_H_
