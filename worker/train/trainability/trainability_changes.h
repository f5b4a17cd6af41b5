// Carries out changes of which parameters are trained, whether a command or the model's own code
// asks for them: the ranks agree on the change, training is planned anew, and the change is
// reported. TrainedParameters (trained_parameters.h) holds which parameters are trained.
#ifndef MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_
#define MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/models/model.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/training.h"

namespace muster::train {

// How commands change which parameters are trained.
class TrainabilityChanger {
 public:
  virtual ~TrainabilityChanger() = default;

  // INVALID_ARGUMENT: the rules do not fit the model.
  virtual absl::Status CheckRules(const std::vector<TrainableRule>& rules) const = 0;
  // What a change to these rules, which CheckRules allows, would do. Changes nothing. The errors of
  // this and of the following end the session.
  virtual absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                                   int64_t command) const = 0;
  // A collective: adds these rules, which CheckRules allows, as the command asks.
  virtual absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules,
                                                 int64_t command) = 0;
  // A collective: brings into force the changes of flags that were held back.
  virtual absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) = 0;
};

// Finds a step hook that changes nothing although it costs time in every step: counts the calls in
// a row, of one session, in which the hook changed nothing. Pure.
class IdleHook {
 public:
  static constexpr int64_t kSteps = 1000;

  struct Options {
    std::string model;  // Model::name
    models::HookKind kind = models::HookKind::kValues;
    bool gathers = false;  // the parameters are sharded, and are gathered for each call
    bool calls = false;    // the ranks hold a roll call after each call
  };
  explicit IdleHook(Options options) : options_(std::move(options)) {}

  // After each call of the hook. changed: whether the hook changed a value or a flag. seconds: the
  // time of the call and of everything that is done for it. Returns a warning, once: after kSteps
  // calls in a row that changed nothing, with their cost and with what the user can do.
  std::optional<std::string> Called(bool changed, double seconds);

  // Whether the warning was returned. From then on `changed` is not used any more.
  bool told() const { return told_; }

 private:
  const Options options_;
  int64_t idle_ = 0;    // calls since the last one that changed something
  double seconds_ = 0;  // their time
  bool told_ = false;
};

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
    SessionRollCall* calls;  // RollCalls::each_step, not Calls
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
  // A change to this mask that no rules gave.
  absl::StatusOr<TrainabilityChange> BringIntoForce(const Mask& mask, int64_t command);
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
