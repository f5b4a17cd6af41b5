// A session's state; its functions lie in files by what they do: session.cc (stages and steps),
// session_setup.cc, session_commands.cc, session_trainability.cc.
#ifndef MUSTER_WORKER_TRAIN_SESSION_IMPL_H_
#define MUSTER_WORKER_TRAIN_SESSION_IMPL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/trainability/trainability.h"
#include "worker/comm/flight/recorded_communicator.h"
#include "worker/data/sampler.h"
#include "worker/models/deferred_values.h"
#include "worker/models/seed.h"
#include "worker/train/checkpoints.h"
#include "worker/train/command_schedule.h"
#include "worker/train/finite.h"
#include "worker/train/guarded.h"
#include "worker/train/loss_reports.h"
#include "worker/train/profile.h"
#include "worker/train/rank_data.h"
#include "worker/train/roll_call.h"
#include "worker/train/session.h"
#include "worker/train/setup.h"
#include "worker/train/stages.h"
#include "worker/train/training.h"

namespace muster::train {

// Threading: one thread.
class SessionImpl : public Session {
 public:
  SessionImpl(const Identity& identity, const Job& job, const SessionParts& parts)
      : identity_(identity),
        job_(job),
        flight_(parts.flight != nullptr ? parts.flight : &own_flight_),
        control_(comm::Recorded(parts.control, flight_, 0)),
        gradients_(comm::Recorded(parts.gradients, flight_, 1)),
        profile_(job.profile, identity),
        parts_(profile_.Trace(WithRecorded(parts))),
        roll_call_(parts_.control),
        plain_context_(std::make_unique<models::ForwardContext>(models::Mode::kTrain,
                                                                models::MakeGenerator(job.seed))) {}

  absl::Status Build();
  absl::StatusOr<SessionEnd> Run() override {
    return Guarded("training", [this] { return RunStages(); });
  }

 private:
  // A collective.
  absl::Status OpenTrainData();
  absl::Status BuildTraining();
  // Compares the sizes of the data sets that all ranks share; a collective.
  absl::Status AgreeOnData();
  // Makes the session one that a checkpoint of this manifest goes into; a collective.
  absl::StatusOr<checkpoint::State> StateFor(const manifest::Manifest& manifest);
  void Restore(const Checkpoints::Restored& restored);
  absl::StatusOr<SessionEnd> RunStages();
  absl::Status Fit(const FitUntil& stage);
  // What is due after a step: nothing, or work and then the plan of the next step.
  absl::StatusOr<std::optional<RollCallPlan>> AtBoundary(const FitUntil& stage,
                                                         const RollCallPlan& next);
  // The model's own code between two steps.
  absl::Status RunStepHook();
  absl::Status Step(const RollCallPlan& plan);
  // That some rank cannot take part in the step of this plan as the others can, where training is
  // to end then. FAILED_PRECONDITION: it would end before its first step.
  absl::StatusOr<bool> RanOut(const RollCallPlan& plan);
  // OUT_OF_RANGE once so many steps in a row were skipped that no more of them will help.
  absl::Status CheckSkips();
  // The stage, and the pass itself.
  absl::Status ValidateOnce();
  // The pass that the session before left to this one.
  absl::Status ValidateDue();
  absl::Status Validate();
  // Unless there is one of this step: saved_ is it then.
  struct SaveResult {
    absl::Status files;  // where they failed, which is reported: that is no error of the session
  };
  // kFinal, that of the end of training, and kAtStop are tried up to three times.
  enum class SaveKind { kOnTheWay, kAtStop, kFinal };
  absl::StatusOr<SaveResult> Save(SaveKind kind = SaveKind::kOnTheWay);
  // Whether to try again what failed for `attempt` times, once: then some time has passed. The same
  // on all ranks.
  bool TryAgain(const absl::Status& files, int attempt, const char* doing);

  // ---- The export (session_export.cc).
  // Rank 0: that the weights may be written where the job says, and nothing older is in their way.
  absl::Status PrepareExport() const;
  // What they left under temporary names.
  void RemoveOlderExports() const;
  // The error of the files is in what is returned with Cause::kFinalSaveFailed.
  absl::Status Export();
  // How rank 0's part went, on all ranks. A type of its own: absl::StatusOr<absl::Status> would
  // take an error of the communicator for it.
  struct LeadersPart {
    absl::Status status;
  };
  absl::StatusOr<LeadersPart> TellLeadersPart(const absl::Status& mine, const char* what);
  // Writes them under their temporary name; a collective.
  absl::StatusOr<LeadersPart> WriteExport(const std::string& temporary);
  // Waits until they may take their place; a collective.
  absl::StatusOr<LeadersPart> AwaitGrant();
  // As LeaseHolder has it.
  absl::Status StillMine() const {
    return parts_.lease == nullptr ? absl::OkStatus() : parts_.lease->StillMine();
  }
  std::string TemporaryExport() const;
  // Waits until this rank has all parameters as they are after the last step.
  absl::Status AwaitParameters();

  // What this rank says of the step after `step` done ones, which begins at `position`.
  RollCallRecord Record(int64_t step, const data::Position& position) const;
  void Post(const RollCallRecord& record);
  // The overlapped call for the step after the one that begins now.
  void PostNext();
  absl::StatusOr<RollCallPlan> AwaitNext();
  // A blocking call for the step that comes now.
  absl::StatusOr<RollCallPlan> CallNow();
  void ReportLoss(const RollCallPlan& plan);
  SessionParts WithRecorded(SessionParts parts) const {
    parts.control = control_.get();
    parts.gradients = gradients_.get();
    return parts;
  }
  // The error that says in which collective the ranks differ. A collective.
  absl::Status NameCollectiveDifference();
  // Tells where a loss that is not finite came from. A collective: the ranks have decided alike
  // that there is one.
  absl::Status WithOrigin(const absl::Status& error);

  // ---- Commands (session_commands.cc).
  // Carries out what is due now that every rank holds the commands up to `newest`, and while the
  // job is halted, waits for more. True when there was anything.
  absl::StatusOr<bool> ApplyCommands(int64_t newest);
  // Where some rank was told that the job goes on elsewhere: saves a checkpoint and ends the
  // session. A collective.
  absl::Status EndHere();
  // One of them. An error is the session's; what goes wrong with the command alone is its outcome.
  absl::Status Apply(const CommandSchedule::Due& due);
  absl::Status Apply(const Command& command, const StopCommand& stop);
  absl::Status Apply(const Command& command, const SaveCheckpointCommand& save);
  absl::Status Apply(const Command& command, const SetLearningRateCommand& set);
  absl::Status Apply(const Command& command, const SetTrainabilityCommand& set);
  absl::Status Apply(const Command& command, const RefreshCommand& refresh);
  absl::Status Apply(const Command& command, const PauseCommand& pause);
  absl::Status Apply(const Command& command, const ResumeCommand& resume);
  absl::Status Apply(const Command& command, const CancelCommand& cancel) {
    return absl::OkStatus();
  }
  absl::Status Apply(const Command& command, const NoCommand& none) { return absl::OkStatus(); }
  // Says that it took effect, and how it ended: at once, so that a change which the workers do not
  // survive was none.
  void Finish(const Command& command, decltype(CommandFinished::result) result = {});
  // The same of one that did nothing. reason: CommandFinished's.
  void Fail(const Command& command, const absl::Status& status, const std::string& reason);
  // Says of a command that it took effect now.
  void TellApplied(int64_t number);
  // Says again how the commands went that the checkpoint has and the coordinator has not heard of:
  // their reports were lost with the process that wrote it.
  void TellUnreported();
  // Fails a command of a job that trains nothing: then false.
  bool NeedsTraining(const Command& command);

  // ---- Which parameters are trained (session_trainability.cc).
  // Right before each step: lets the model's own code run, and brings into force what it has frozen
  // or unfrozen, as the job says. True where another roll call is needed before the step.
  absl::StatusOr<bool> LetModelChange();
  // Plans anew for this mask, where it is another. `command` asked for it (0: model code).
  absl::StatusOr<TrainabilityChange> ChangeTo(const Mask& mask, int64_t command);
  // The error that says in which parameter the ranks' wishes differ. A collective.
  absl::Status NameMaskDifference();
  TrainabilityChange Difference(const Mask& mask, int64_t command) const;
  // To be called with what has just changed; absent at the start of a session.
  void ReportTrainability(const std::optional<TrainabilityChange>& change);
  void PlanAnew();  // after training_ did
  std::vector<std::string> PendingNames() const;

  parallel::Strategy* strategy() const {
    return training_ == nullptr ? nullptr : &training_->strategy();
  }
  models::ForwardContext& context() {
    return training_ == nullptr ? *plain_context_ : training_->context();
  }
  // Then no rank ever holds the whole model.
  bool in_shards() const { return std::holds_alternative<parallel::FsdpOptions>(job_.strategy); }
  bool trains() const { return sampler_.has_value(); }
  // A rank's own files may be without samples where it can join.
  data::Emptiness emptiness() const {
    const bool joins = job_.batch.last == data::Last::kUneven && !job_.uneven_inputs.stop_at_first;
    return joins ? data::Emptiness::kAllowed : data::Emptiness::kRefused;
  }
  bool leader() const { return identity_.rank == 0; }
  void Report(const Event& event) {
    if (leader()) parts_.events->Report(event);
  }
  void Progress(const char* doing) { parts_.events->Progress(step_, stage_, doing); }

  const Identity identity_;
  const Job job_;
  // Behind all communicators that the session uses.
  comm::FlightRecorder own_flight_;
  comm::FlightRecorder* const flight_;
  const std::unique_ptr<comm::Communicator> control_;
  const std::unique_ptr<comm::Communicator> gradients_;
  Profile profile_;
  const SessionParts parts_;

  RollCall roll_call_;
  std::unique_ptr<models::Model> model_;
  std::vector<models::Parameter> parameters_;  // of it
  models::DeferredValues deferred_;            // of its parameters, while it is set up
  std::optional<FiniteCheck> finite_;
  std::optional<RankData> validate_data_;
  checkpoint::State state_;
  std::unique_ptr<Checkpoints> checkpoints_;
  int64_t layout_ = 0;  // a hash of what lies where

  // Only in jobs that have a fit stage.
  std::optional<RankData> train_data_;
  std::optional<data::Sampler> sampler_;
  std::optional<Trainability> trainability_;
  // The flags that are to be in force; between two boundaries those of training_.
  Mask wanted_;
  // With RefreshMode::kManual: what model code wants and nobody has brought into force.
  std::optional<Mask> pending_;
  bool described_ = false;  // the model's parameters, to the coordinator

  // Also in jobs without, where the model lies in shards.
  std::unique_ptr<Training> training_;
  std::unique_ptr<models::ForwardContext> plain_context_;  // where there is no training_

  const char* stage_ = "";
  int64_t step_ = 0;         // optimizer steps done
  data::Position position_;  // what they consumed
  std::optional<CheckpointWritten>
      saved_;  // the newest checkpoint that was written or gone on from
  CommandSchedule schedule_;
  // The newest commands that took effect, with their steps, by time: for checkpoints.
  std::deque<std::pair<int64_t, int64_t>> applied_;
  double learning_rate_ = 0;  // what the job's schedule scales
  bool paused_ = false;
  bool stopped_ = false;  // by a command, or preempted: nothing more is done
  bool preempted_ = false;
  // After this step, and not run yet: that is left to whoever goes on from here.
  bool validation_due_ = false;
  std::string ended_early_;         // why, with uneven_inputs: stop_at_first
  absl::Status final_save_;         // how the save at the end of training went
  std::vector<JoinedRank> joined_;  // as reported
  int64_t attempt_ = 0;

  // Losses of the newest finished step on this rank.
  int64_t loss_step_ = 0;
  double loss_sum_ = 0;
  double loss_weight_ = 0;
  std::string not_finite_;         // StepResult's
  std::string posted_not_finite_;  // that of the step whose loss is in the newest posted record
  Outcome outcome_ = Outcome::kApplied;  // of that step
  int64_t skipped_in_a_row_ = 0;         // in this session
  LossReports loss_reports_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_IMPL_H_
