// A session composes its parts: session.cc goes through stages and steps, session_evaluation.cc and
// session_predict.cc have the stages that do not train, session_improvement.cc what validation
// decides in fit stages, session_requests.cc what is computed on request, session_setup.cc builds
// everything, session_start.cc fills it from files. What the parts do is in files of their own:
// trained_parameters.h (which parameters are trained), trainability_changes.h, session_roll_call.h,
// commands.h, saving.h, gathering.h, background.h (what is written while training continues),
// weights_export.h, stages.h (what follows a step), session_state.h (the position and settings
// between two steps).
#ifndef MUSTER_WORKER_TRAIN_SESSION_SESSION_IMPL_H_
#define MUSTER_WORKER_TRAIN_SESSION_SESSION_IMPL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/tokenizer/source.h"
#include "worker/checkpoint/load_weights.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/flight/recorded_communicator.h"
#include "worker/data/sampler.h"
#include "worker/models/deferred_values.h"
#include "worker/models/generate.h"
#include "worker/models/seed.h"
#include "worker/train/commands/commands.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/job/improvement.h"
#include "worker/train/job/stages.h"
#include "worker/train/predict/prediction_file.h"
#include "worker/train/reports/attempts.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/background.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/saving.h"
#include "worker/train/save/weights_export.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/session/profile.h"
#include "worker/train/session/session.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/trainability/trainability_changes.h"
#include "worker/train/training/setup.h"
#include "worker/train/training/training.h"

namespace muster::train {

// Threading: one thread.
class SessionImpl : public Session, private CommandEffects {
 public:
  SessionImpl(const Identity& identity, const Job& job, const SessionParts& parts);

  // A collective.
  absl::Status Build();
  absl::StatusOr<SessionEnd> Run() override;

 private:
  // ---- Set-up (session_setup.cc). Collectives.
  absl::Status BuildModel();
  // Reports what was taken from the weights file, and compares it on all ranks.
  absl::Status AgreeOnWeights();
  // Ends the session on all ranks if the values that some rank has read of the weights file are
  // wrong: with fsdp each rank reads other ones.
  absl::Status CheckWeights();
  absl::Status OpenTrainData();
  absl::Status OpenEvaluationData();
  // A collective: whether the rows are in the order of the model's input.
  absl::Status CheckRows(const char* name, const RankData& data);
  struct NamedData {
    const char* name;  // "data.train"
    const RankData* data;
  };
  // The sets of data that this rank has opened.
  std::vector<NamedData> OpenedData() const;
  absl::Status FindTokenizer();
  // Compares the sizes of the data sets that all ranks share.
  absl::Status AgreeOnData();
  absl::Status MakeSampler();
  // Plans the stages in steps; where a stage counts in epochs, only the data tell their number.
  // INVALID_ARGUMENT: the job does not fit this number. Not if it `went_on`: continues from a
  // checkpoint of its own.
  absl::Status PlanSteps(bool went_on);
  absl::Status BuildTraining();
  absl::Status BuildShards();
  absl::StatusOr<std::unique_ptr<Training>> MakeTraining();
  // Returns the path of the checkpoint that the session continues from; empty: none.
  absl::StatusOr<std::string> OpenCheckpoints();

  // ---- What it starts from (session_start.cc). Collectives.
  // Prepares the session for a checkpoint with this manifest, and returns the state to fill from
  // it.
  absl::StatusOr<checkpoint::State> StateFor(const manifest::Manifest& manifest);
  // Tells the leader's log and the coordinator that the averages begin anew, unless this checkpoint
  // has some.
  void TellOfAverages(const Checkpoints::Restored& restored) const;
  // The parameters of whose optimizer's state the checkpoint holds.
  std::set<std::string> WithState(const manifest::Manifest& manifest) const;
  // The parameters of these names that are frozen.
  Mask FrozenOf(const std::set<std::string>& names) const;
  void Restore(const Checkpoints::Restored& restored);
  // The same for the place in the data. `own`: how the session takes samples. `world_size`: of the
  // checkpoint.
  void GoOnWithData(const manifest::SamplingRecord& own, int64_t world_size);
  // Begins with another job's checkpoint, if the job names one. Returns its path if the session
  // continues where it ends.
  absl::StatusOr<std::string> StartFromOther();
  // The state to fill from it.
  absl::StatusOr<checkpoint::State> StateFromOther(const manifest::Manifest& manifest);
  // INVALID_ARGUMENT: an end that would lose training is known now (known_ends.h). `started_from`:
  // the checkpoint from which the session continues; empty: none.
  absl::Status CheckKnownEnds(const std::string& started_from) const;
  // Fills the optimizer's state from the job's file, if it names one.
  absl::Status ImportOptimizerState();

  // ---- Stages and steps (session.cc). Collectives.
  absl::StatusOr<SessionEnd> RunStages();
  // From its begin, or from where the steps have come to, to its end.
  absl::Status RunStage(const PlannedStage& stage);
  absl::Status Fit(FitUntil stage);
  absl::Status Step(const RollCallPlan& plan);
  // Does what follows a step. Returns the plan of the next step, or nothing if there was nothing to
  // do. The stage's end is this step if it ends early.
  absl::StatusOr<std::optional<RollCallPlan>> AtBoundary(FitUntil* stage, const RollCallPlan& next);
  DueRules RulesOf(const FitUntil& stage) const;
  // True if training must end before the step of this plan, because some rank has less input than
  // others and the job stops at the first such step. FAILED_PRECONDITION: training would end before
  // its first step.
  absl::StatusOr<bool> RanOut(const RollCallPlan& plan);
  absl::Status Export();
  absl::Status ExportWeights();
  void BeginStage(const char* stage);
  // Frees what only training needs, unless a checkpoint of this step may still need it.
  absl::Status EndTraining();

  // ---- Stages that do not train (session_evaluation.cc). Collectives.
  // Runs such a stage: the roll call, commands, and its work, until `work` is done (true) or the
  // session stops. Work that was interrupted is not done.
  absl::Status RunToEnd(const std::function<absl::StatusOr<bool>()>& work);
  // Runs the validation pass that the previous session left to this one.
  absl::Status ValidateDue();
  // Passes over data.validate and data.test; not done where they were interrupted.
  absl::StatusOr<std::optional<v1::Evaluation>> Validate();
  absl::StatusOr<bool> Test();
  enum class Interrupts { kNever, kByAnEnd };
  absl::StatusOr<std::optional<v1::Evaluation>> EvaluateOn(const std::optional<RankData>& data,
                                                           const char* name,
                                                           Interrupts interrupts);
  // As train::Generate.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(
      const models::GenerationRequest& request);

  // ---- What validation decides in fit stages (session_improvement.cc). Collectives.
  // INVALID_ARGUMENT: a stage needs a metric that the model does not give.
  absl::Status CheckMetrics() const;
  // The plan of the stages, of which some may have ended early.
  std::vector<PlannedStage> Plan() const;
  // If the best checkpoint that the session knows is there, tells so; otherwise forgets it.
  absl::Status FindBest();
  // The pass of a fit stage after this step. If it ends the stage, `stage` and the plan say so.
  // True if the checkpoint of this step becomes the best one, if it can be written.
  // None if the pass was interrupted.
  absl::StatusOr<std::optional<bool>> ValidateInFit(FitUntil* stage);
  // The pass that the previous session left to this one. Whether it is done.
  absl::StatusOr<bool> ValidateLeft();
  // Hears how the save of the best checkpoint ended.
  void BestSaved(const absl::Status& saved);
  // Before a checkpoint is saved. True if this step is the best one and its checkpoint could not be
  // written: the one that is saved now is the best one, if it can be written.
  absl::StatusOr<bool> BestAgain();
  // The directory of the best checkpoint. NOT_FOUND: there is none.
  absl::StatusOr<std::string> BestPath() const;

  // ---- Stages `predict` (session_predict.cc). Collectives.
  // Checks that the remaining ones will be able to write their files, and reads their prompts.
  absl::Status PreparePredictions();
  absl::Status Predict(const PlannedStage& stage, const PredictStage& predict);
  // How a run of such a stage ended that was not ended by an error of the session; the same on all
  // ranks.
  struct Predicted {
    bool interrupted = false;  // there is something else to do first
    absl::Status file;         // of writing the file
  };
  absl::StatusOr<Predicted> PredictSamples(const std::string& name, const PredictStage& predict);
  absl::StatusOr<Predicted> PredictTexts(const std::string& name, const PredictStage& predict,
                                         const models::GenerationRequest& request);
  struct Prediction {
    std::string stage;
    std::string path;
    std::string contents;  // described, for the event
  };
  // Gives the file of rank 0, of which all bytes are written unless `written` is an error, its
  // name.
  absl::StatusOr<Predicted> Place(const Prediction& prediction, absl::Status written,
                                  std::unique_ptr<PredictionFile> file);
  // Whether the job is to leave its nodes, or to stop.
  absl::StatusOr<bool> AskedToEnd();
  // Whether a pass ends for that. A job without checkpoints that leaves its nodes begins anew: the
  // pass may be all that is left.
  absl::StatusOr<bool> PassMustEnd();
  bool StopsNow(const RollCallPlan& plan) const;
  absl::StatusOr<models::GenerationRequest> RequestOf(const GenerateConfig& generate);
  PredictionTarget TargetOf(const PredictStage& predict) const;
  // Rank 0's `mine` becomes `told` on all ranks. Errors: the communicator's.
  absl::Status ShareOfRank0(const absl::Status& mine, const char* what, absl::Status* told);

  // ---- CommandEffects. What commands only compute (session_requests.cc).
  bool HasDataFor(const std::string& stage) const override;
  absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) override;
  absl::Status CheckSample(const SampleCommand& sample) const override;
  absl::StatusOr<SampleMade> Sample(const SampleCommand& sample) override;
  // ---- CommandEffects. All others.
  bool trains() const override { return sampler_.has_value(); }
  bool training_over() const override { return training_over_; }
  bool has_checkpoints() const override { return checkpoints_ != nullptr; }
  absl::StatusOr<RollCallPlan> CallNow() override;
  absl::Status Save(int64_t command, Saving::Told told) override;  // session_improvement.cc
  absl::StatusOr<Saving::Saved> SaveLast() override;               // likewise
  absl::Status Gather(const GatherOptimizerStateCommand& gather, int64_t command,
                      Gathering::Told told) override {
    return gathering_->Gather(gather, command, std::move(told));
  }
  absl::Status Consolidate(const ConsolidateCommand& consolidate, int64_t command,
                           Gathering::ToldOfModel told) override {
    return gathering_->Consolidate(consolidate, command, std::move(told));
  }
  absl::StatusOr<bool> CancelGather(int64_t command) override {
    return gathering_->Cancel(command);
  }
  absl::Status LeaveGatherToNextGeneration() override {
    return gathering_->LeaveToNextGeneration();
  }
  void RemoveLeftoversOfGather(const std::string& path) override {
    gathering_->RemoveLeftovers(path);
  }
  absl::Status CheckRules(const std::vector<TrainableRule>& rules) const override {
    return trained_->With(rules).status();
  }
  absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                           int64_t command) override {
    return changes_->Foresee(rules, command);
  }
  absl::StatusOr<TrainabilityChange> AddRules(const std::vector<TrainableRule>& rules,
                                              int64_t command) override {
    return changes_->Add(rules, command);
  }
  absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) override {
    return changes_->BringPendingIntoForce(command);
  }

  parallel::Strategy* strategy() const {
    return training_ == nullptr ? nullptr : &training_->strategy();
  }
  models::ForwardContext& context() {
    return training_ == nullptr ? *plain_context_ : training_->context();
  }
  // Everything that a checkpoint holds as tensors: the live ones, not copies.
  checkpoint::State State() const;
  // What files with this state say about its parameters.
  absl::StatusOr<checkpoint::ModelRecords> Records(const checkpoint::State& state) const;
  // Waits until this rank has all parameters as they are after the last step.
  absl::Status AwaitParameters();
  // AwaitParameters, and checks that the parameters are finite and the same on all ranks.
  absl::Status AwaitWeights();
  // Of the model.
  c10::Device device() const { return parts_.gradients->device(); }
  parallel::Communicators communicators() const { return {parts_.gradients, parts_.parameters}; }
  // True if no rank ever holds the whole model.
  bool in_shards() const { return std::holds_alternative<parallel::FsdpOptions>(job_.strategy); }
  // Whether a rank's own files may have no samples: yes if such a rank takes part without input.
  data::Emptiness emptiness() const;
  SessionParts WithRecorded(SessionParts parts) const;

  const Identity identity_;
  Job job_;  // changed by PlanSteps only
  // Records the collectives of all communicators that the session uses.
  comm::FlightRecorder own_flight_;
  comm::FlightRecorder* const flight_;
  const std::unique_ptr<comm::Communicator> control_;
  const std::unique_ptr<comm::Communicator> gradients_;
  const std::unique_ptr<comm::Communicator> parameters_;
  const std::unique_ptr<comm::Communicator> files_;
  Profile profile_;
  const SessionParts parts_;

  SessionState session_state_;
  const SessionReports reports_;
  const Attempts attempts_;
  SessionRollCall roll_call_;

  std::unique_ptr<models::Model> model_;
  models::DeferredValues deferred_;  // values of its parameters during set-up
  std::optional<checkpoint::LoadedWeights> weights_;
  std::unique_ptr<TrainedParameters> trained_;
  std::optional<FiniteCheck> finite_;
  std::optional<RankData> validate_data_;
  std::optional<RankData> test_data_;
  std::optional<RankData> predict_data_;
  std::map<int64_t, models::GenerationRequest> requests_;  // of stages that generate, by index
  std::vector<PlannedStage> stages_;

  // Only in jobs that have a fit stage.
  std::optional<RankData> train_data_;
  std::optional<data::Sampler> sampler_;
  std::optional<TrainabilityChanges> changes_;

  // Also in jobs without a fit stage if the model is sharded.
  std::unique_ptr<Training> training_;
  bool training_over_ = false;  // EndTraining has freed what only training needs
  std::unique_ptr<models::ForwardContext> plain_context_;  // used if there is no training_

  checkpoint::Writing own_writing_;
  checkpoint::Writing* const writing_;
  checkpoint::CountingDisk disk_;  // for all that is written while training continues
  // Only in jobs with checkpoints.
  std::unique_ptr<Checkpoints> checkpoints_;
  std::optional<Saving> saving_;
  // Where the weights of the checkpoint came from with which this session starts.
  std::string first_weights_;
  // What made the tokens of the job's data, or of the checkpoint with which this session starts.
  tokenizer::Source tokenizer_;
  std::optional<Gathering> gathering_;  // only in jobs that train

  CommandSchedule schedule_;
  std::optional<Commands> commands_;
  std::optional<WeightsExport> export_;  // only in jobs that export
  EvaluationPasses passes_;

  std::string ended_early_;  // why, with uneven_inputs: stop_at_first
  absl::Status final_save_;  // how the save at the end of training went
  // The best checkpoint before the one that is being written.
  std::optional<manifest::ValidationRecord::Best> former_best_;
  // The newest pass that would have been the best one, but its checkpoint could not be written.
  std::optional<manifest::ValidationRecord::Best> unsaved_best_;

  // Last: a task that runs uses what is above.
  Background background_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_SESSION_IMPL_H_
