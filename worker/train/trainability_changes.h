// Carries out changes of what is trained, by commands and by the model's own code: the ranks agree,
// training is planned anew, and the change is told. trained_parameters.h owns what is trained.
#ifndef MUSTER_WORKER_TRAIN_TRAINABILITY_CHANGES_H_
#define MUSTER_WORKER_TRAIN_TRAINABILITY_CHANGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/models/model.h"
#include "worker/train/idle_hook.h"
#include "worker/train/job.h"
#include "worker/train/outside.h"
#include "worker/train/session_reports.h"
#include "worker/train/session_roll_call.h"
#include "worker/train/standing.h"
#include "worker/train/trained_parameters.h"
#include "worker/train/training.h"

namespace muster::train {

// Threading: the session's thread. What may change something is a collective.
class TrainabilityChanges {
 public:
  // All outlive it.
  struct Parts {
    int64_t rank;
    RefreshMode refresh;
    models::Model* model;
    TrainedParameters* trained;
    Training* training;
    SessionRollCall* calls;
    const Standing* standing;
    const SessionReports* reports;
  };
  explicit TrainabilityChanges(const Parts& parts);

  // Right before each step: lets the model's own code run, and brings into force what it has frozen
  // or unfrozen, or holds it back, as the job says. The plan of the step, where the ranks had to
  // hold another roll call for that. Errors: those of the model's code, with rank and step.
  absl::StatusOr<std::optional<RollCallPlan>> BeforeStep();

  // What a change to these rules would do; With(rules) is OK. Changes nothing.
  absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                           int64_t command) const;
  // Adds these rules, as the command asks; With(rules) is OK.
  absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules, int64_t command);
  // Brings into force what was held back.
  absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command);

  // What is in force: at the start of a session.
  void ReportInForce() { Report(std::nullopt); }

 private:
  // The model's own code between two steps. Whether it has changed any value.
  absl::StatusOr<bool> RunHook();
  absl::StatusOr<TrainabilityChange> BringFlagsIntoForce();
  TrainabilityChange Difference(const Mask& mask, int64_t command) const;
  // Plans anew for this mask, where it is another. `command` asked for it (0: model code).
  absl::StatusOr<TrainabilityChange> ChangeTo(const Mask& mask, int64_t command);
  void Report(const std::optional<TrainabilityChange>& change);

  const Parts parts_;
  const models::HookKind hook_;
  IdleHook idle_;
  bool described_ = false;  // the model's parameters, to the coordinator
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABILITY_CHANGES_H_
