// Changes which parameters are trained, for commands and for the model's own code. The ranks agree
// on the change, training is planned anew, and the change is reported. TrainedParameters
// (trained_parameters.h) holds the flags.
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
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/training.h"

namespace muster::train {

// The interface through which commands change which parameters are trained.
class TrainabilityChanger {
 public:
  virtual ~TrainabilityChanger() = default;

  // INVALID_ARGUMENT: the rules do not fit the model.
  virtual absl::Status CheckRules(const std::vector<TrainableRule>& rules) const = 0;
  // Returns the effect of a change to `rules`, and changes nothing. CheckRules has accepted
  // `rules`. Errors of this method and of the methods below end the session.
  virtual absl::StatusOr<TrainabilityPlan> Estimate(const std::vector<TrainableRule>& rules,
                                                    int64_t command) const = 0;
  // Adds `rules` because of this command. CheckRules has accepted `rules`. A collective.
  virtual absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules,
                                                 int64_t command) = 0;
  // Brings into force the flag changes that were held back. A collective.
  virtual absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) = 0;
};

// Finds a step hook that takes time in every step but changes nothing. Counts the calls in a row
// without a change, within one session. Pure.
class IdleHook {
 public:
  static constexpr int64_t kSteps = 1000;

  struct Options {
    std::string model;  // Model::name
    models::HookKind kind = models::HookKind::kValues;
    bool gathers = false;  // the parameters are sharded and are gathered for each call
    bool calls = false;    // the ranks hold a roll call after each call
  };
  explicit IdleHook(Options options) : options_(std::move(options)) {}

  // Called after each call of the hook. changed: the hook changed a value or a flag. seconds: the
  // time of the call with everything that the call needs. Returns a warning once, after kSteps
  // calls in a row without a change. The warning has the cost and advice for the user.
  std::optional<std::string> Called(bool changed, double seconds);

  // Whether the warning was returned. From then on Called ignores `changed`.
  bool told() const { return told_; }

 private:
  const Options options_;
  int64_t idle_ = 0;    // calls in a row without a change
  double seconds_ = 0;  // the time of these calls
  bool told_ = false;
};

// Threading: the session's thread. BeforeStep, Add and BringPendingIntoForce are collectives.
class TrainabilityChanges : public TrainabilityChanger {
 public:
  // All pointers must outlive this object.
  struct Dependencies {
    int64_t rank;
    RefreshMode refresh;
    models::Model* model;
    TrainedParameters* trained;
    Training* training;
    // RollCalls::each_step. It is called directly, because Calls (for boundaries) also checks
    // background saves.
    SessionRollCall* calls;
    const SessionState* session_state;
    const SessionReports* reports;
  };
  explicit TrainabilityChanges(const Dependencies& deps);

  // Runs the model's step hook, right before each step. Brings the flags that the hook or other
  // model code has changed into force, or holds them back; RefreshMode decides. Returns the step's
  // plan if the ranks held another roll call. Errors: those of the model's code, with rank and
  // step; those of SessionRollCall::CallNow, Training::Refresh, Strategy::AwaitParameters and
  // ParameterStore::Gather.
  absl::StatusOr<std::optional<RollCallPlan>> BeforeStep();

  absl::Status CheckRules(const std::vector<TrainableRule>& rules) const override {
    return deps_.trained->With(rules).status();
  }
  absl::StatusOr<TrainabilityPlan> Estimate(const std::vector<TrainableRule>& rules,
                                            int64_t command) const override;
  absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules,
                                         int64_t command) override;
  absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) override;

  // Reports which parameters are trained, at the start of a session.
  void ReportInForce() { Report(std::nullopt); }

 private:
  // Runs the model's step hook. Returns whether the hook has written a value.
  absl::StatusOr<bool> RunHook();
  // Brings into force a mask that does not come from rules.
  absl::StatusOr<TrainabilityChange> BringIntoForce(const Mask& mask, int64_t command);
  TrainabilityChange Difference(const Mask& mask, int64_t command) const;
  // Plans training anew for this mask, unless the mask is already in force. `command`: the command
  // that asked for the change; 0: the model's code.
  absl::StatusOr<TrainabilityChange> ChangeTo(const Mask& mask, int64_t command);
  void Report(const std::optional<TrainabilityChange>& change);

  const Dependencies deps_;
  const models::HookKind hook_;
  IdleHook idle_;
  bool described_ = false;  // the model's parameters were reported
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGES_H_
