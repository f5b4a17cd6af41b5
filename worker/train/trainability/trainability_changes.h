// Carries out changes of which parameters are trained, whether a command or the model's own code
// asks for them: the ranks agree on the change, training is planned anew, and the change is
// reported. TrainedParameters (trained_parameters.h) holds which parameters are trained.
#ifndef MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_
#define MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/models/model.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/trainability/idle_hook.h"
#include "worker/train/trainability/trainability_changer.h"
#include "worker/train/training/training.h"

namespace muster::train {

// Threading: the session's thread. BeforeStep, Add and BringPendingIntoForce are collectives.
class TrainabilityChanges : public TrainabilityChanger {
 public:
  // All pointers must outlive this object.
  struct Parts {
    int64_t rank;
    RefreshMode refresh;
    models::Model* model;
    TrainedParameters* trained;
    Training* training;
    SessionRollCall* calls;
    const SessionState* session_state;
    const SessionReports* reports;
  };
  explicit TrainabilityChanges(const Parts& parts);

  // Called right before each step. Runs the model's step hook. What the hook has frozen or unfrozen
  // is brought into force, or held back, as the job's `refresh` says. Returns the plan of the step
  // if the ranks held another roll call for this. Errors: those of the model's code, with rank and
  // step.
  absl::StatusOr<std::optional<RollCallPlan>> BeforeStep();

  absl::Status CheckRules(const std::vector<TrainableRule>& rules) const override {
    return parts_.trained->With(rules).status();
  }
  absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                           int64_t command) const override;
  absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules,
                                         int64_t command) override;
  absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) override;

  // Reports what is in force, at the start of a session.
  void ReportInForce() { Report(std::nullopt); }

 private:
  // Runs the model's step hook. Returns whether it has written a value.
  absl::StatusOr<bool> RunHook();
  absl::StatusOr<TrainabilityChange> BringFlagsIntoForce();
  TrainabilityChange Difference(const Mask& mask, int64_t command) const;
  // Plans training anew for this mask, unless it is already in force. `command` asked for it; 0:
  // the model's code did.
  absl::StatusOr<TrainabilityChange> ChangeTo(const Mask& mask, int64_t command);
  void Report(const std::optional<TrainabilityChange>& change);

  const Parts parts_;
  const models::HookKind hook_;
  IdleHook idle_;
  bool described_ = false;  // whether the model's parameters were reported
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_
