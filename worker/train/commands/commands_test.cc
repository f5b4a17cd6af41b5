#include "worker/train/commands/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/train/reports/test_commands.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A session that records the effects of commands.
class Effects : public Saver,
                public Gatherer,
                public TrainabilityChanger,
                public Evaluator,
                public Generator {
 public:
  absl::StatusOr<RollCallPlan> CallNow() {
    done_.push_back("call");
    RollCallPlan plan;
    if (!plans_.empty()) {
      plan = plans_.front();
      plans_.pop_front();
    }
    return plan;
  }
  absl::Status Save(int64_t, Saver::Told told) override {
    done_.push_back("save");
    Write([this, told] { told(SavedNow()); });
    return absl::OkStatus();
  }
  absl::StatusOr<Saver::Saved> SaveLast() override {
    done_.push_back("last save");
    return SavedNow();
  }
  absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command,
                      Gatherer::Told told) override {
    done_.push_back("gather " + file.path());
    gathered_by_ = command;
    Write([this, told] {
      if (!files_.ok()) return told(files_);
      told(OptimizerStateGathered{.bytes = 5});
    });
    return absl::OkStatus();
  }
  absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                           ToldOfModel told) override {
    done_.push_back("consolidate " + folder.path());
    gathered_by_ = command;
    Write([this, told] {
      if (!files_.ok()) return told(files_);
      told(ModelConsolidated{.bytes = 7});
    });
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Cancel(int64_t command) override {
    if (command != gathered_by_ || files_written_) return false;
    files_ = absl::CancelledError("cancelled");
    WriteFiles();
    return true;
  }
  absl::Status LeaveToNextGeneration() override {
    unwritten_.clear();
    return absl::OkStatus();
  }
  void RemoveLeftovers(const std::string& path) const override {
    done_.push_back("clean up beside " + path);
  }
  // Completes the files that are written in the background.
  void WriteFiles() {
    files_written_ = true;
    for (const auto& write : std::exchange(unwritten_, {})) write();
  }
  bool HasDataFor(const std::string& stage) const override { return stage == "validate"; }
  absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) override {
    done_.push_back("evaluate " + stage);
    if (!pass_.ok()) return pass_;
    if (!files_.ok()) return Evaluated(files_);
    return Evaluated(StageEvaluated{.step = 7, .stage = stage});
  }
  absl::StatusOr<Prepared> Prepare(const v1::SampleCommand& sample) override {
    if (!sample.text().empty()) return Prepared(absl::NotFoundError("no tokenizer"));
    if (sample.max_tokens() == 0) return Prepared(absl::InvalidArgumentError("no tokens"));
    if (sample.tokens().empty()) return Prepared(absl::FailedPreconditionError("no gpt2"));
    return Prepared(
        models::GenerationRequest{.prompts = {{sample.tokens().begin(), sample.tokens().end()}},
                                  .max_tokens = sample.max_tokens()});
  }
  absl::StatusOr<SampleMade> Sample(const models::GenerationRequest& request) override {
    done_.push_back(absl::StrCat("sample ", request.max_tokens));
    if (!pass_.ok()) return pass_;
    if (!files_.ok()) return SampleMade(files_);
    return SampleMade(Sampled{.step = 7, .prompt = request.prompts[0], .tokens = {5}});
  }
  absl::Status CheckRules(const std::vector<TrainableRule>& rules) const override {
    return rules.empty() ? absl::InvalidArgumentError("no rules") : absl::OkStatus();
  }
  absl::StatusOr<TrainabilityPlan> Estimate(const std::vector<TrainableRule>&,
                                            int64_t) const override {
    done_.push_back("foresee");
    return TrainabilityPlan();
  }
  absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>&,
                                         int64_t command) override {
    done_.push_back(absl::StrCat("rules of ", command));
    return TrainabilityChange();
  }
  absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t) override {
    done_.push_back("refresh");
    return TrainabilityChange();
  }

  absl::StatusOr<v1::SkippedData> Skip(int64_t samples, bool dry_run) {
    done_.push_back(absl::StrCat(dry_run ? "foresee skip " : "skip ", samples));
    if (samples > 100) return absl::FailedPreconditionError("no steps");
    v1::SkippedData skipped;
    skipped.set_first(8);
    skipped.set_last(7 + samples);
    return skipped;
  }

  bool in_background_ = false;
  absl::Status files_;
  absl::Status pass_;               // an error of one rank, which ends the session
  std::deque<RollCallPlan> plans_;  // the plans of the calls, in order; later calls get empty plans
  mutable std::vector<std::string> done_;

 private:
  Saver::Saved SavedNow() const {
    if (!files_.ok()) return files_;
    return CheckpointWritten{.step = 7, .path = "path", .generation = 1};
  }
  void Write(std::function<void()> write) {
    files_written_ = false;
    unwritten_.push_back(std::move(write));
    if (!in_background_) WriteFiles();
  }

  int64_t gathered_by_ = 0;
  bool files_written_ = false;
  std::vector<std::function<void()>> unwritten_;
};

class CommandsTest : public testing::Test, public CommandSource, public EventSink {
 protected:
  int64_t Newest() const override { return static_cast<int64_t>(log_.size()); }
  Command Get(int64_t number) const override { return log_[number - 1]; }
  void Report(const Event& event) override {
    if (const auto* applied = std::get_if<CommandApplied>(&event)) {
      events_.push_back(absl::StrCat("applied ", applied->number));
    }
    if (const auto* notice = std::get_if<Notice>(&event)) {
      notices_.push_back(absl::StrCat(notice->reason, " ", notice->message));
    }
    if (const auto* finished = std::get_if<CommandFinished>(&event)) {
      events_.push_back(absl::StrCat("finished ", finished->number));
      ended_.push_back(
          absl::StrCat(finished->number, " ", finished->status.ok() ? "done" : finished->reason));
    }
  }
  void Progress(int64_t, const char*, const char*) override {}

  CommandsTest() { OfAJobThat(/*trains=*/true, /*has_checkpoints=*/true); }
  void OfAJobThat(bool trains, bool has_checkpoints) {
    commands_.emplace(Commands::Dependencies{
        .source = this,
        .call = [this] { return effects_.CallNow(); },
        .saver = has_checkpoints ? &effects_ : nullptr,
        .gatherer = trains ? &effects_ : nullptr,
        .trainability = trains ? &effects_ : nullptr,
        .skip_data = [this](int64_t samples,
                            bool dry_run) { return effects_.Skip(samples, dry_run); },
        .evaluator = &effects_,
        .generator = &effects_,
        .learning_rates = &rates_,
        .schedule = &schedule_,
        .session_state = &session_state_,
        .reports = &reports_,
        .pause_beat = std::chrono::milliseconds(0)});
  }

  // Runs Apply at step 7 with these commands in the log. Returns its result.
  bool Apply(const std::vector<Command>& log) {
    log_.clear();
    for (const Command& command : log) {
      log_.push_back(Numbered(static_cast<int64_t>(log_.size()) + 1, command));
    }
    const auto applied = commands_->Apply(Newest());
    EXPECT_TRUE(applied.ok()) << applied.status();
    return *applied;
  }

  std::vector<Command> log_;
  std::vector<std::string> ended_;
  std::vector<std::string> events_;
  std::vector<std::string> notices_;
  Effects effects_;
  CommandSchedule schedule_;
  SessionState session_state_{.step = 7, .learning_rate = 0.5};
  const SessionReports reports_{0, this, &session_state_};
  const optim::Schedule rates_;
  std::optional<Commands> commands_;
};

TEST_F(CommandsTest, WithoutAnyNothingIsDone) {
  EXPECT_FALSE(Apply({}));
  EXPECT_THAT(effects_.done_, IsEmpty());
}

TEST_F(CommandsTest, AGatherFollowsACallAndEndsWithItsFile) {
  EXPECT_TRUE(Apply({GatherTo("/state.pt")}));
  EXPECT_THAT(effects_.done_, ElementsAre("call", "gather /state.pt"));
  EXPECT_THAT(ended_, ElementsAre("1 done"));
}

TEST_F(CommandsTest, AConsolidationIsAsAGather) {
  EXPECT_TRUE(Apply({ConsolidateTo("/model")}));
  EXPECT_THAT(effects_.done_, ElementsAre("call", "consolidate /model"));
}

TEST_F(CommandsTest, AFileThatCannotBeWrittenIsAnErrorOfTheGatherOnly) {
  effects_.files_ = absl::AlreadyExistsError("there is such a file");
  EXPECT_TRUE(Apply({GatherTo("/state.pt")}));
  EXPECT_THAT(ended_, ElementsAre("1 ")) << "an error without a reason";
}

TEST_F(CommandsTest, FilesThatAreWrittenInTheBackgroundEndTheirCommandsLater) {
  effects_.in_background_ = true;
  EXPECT_TRUE(Apply({A(v1::SaveCheckpointCommand()), GatherTo("/state.pt")}));
  EXPECT_THAT(session_state_.applied, testing::SizeIs(2)) << "they have taken effect";
  EXPECT_THAT(ended_, IsEmpty());
  effects_.WriteFiles();
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done"));
}

TEST_F(CommandsTest, AGatherIsCancelledWhileItsFileIsWritten) {
  effects_.in_background_ = true;
  EXPECT_TRUE(Apply({GatherTo("/state.pt")}));
  log_.push_back(Numbered(2, CancelOf(1)));
  EXPECT_TRUE(commands_->Apply(2).ok());
  EXPECT_THAT(ended_, ElementsAre("1 OPERATION_CANCELLED", "2 done"));
  log_.push_back(Numbered(3, CancelOf(1)));
  EXPECT_TRUE(commands_->Apply(3).ok());
  EXPECT_THAT(ended_, ElementsAre("1 OPERATION_CANCELLED", "2 done", "3 OPERATION_APPLIED"));
}

TEST_F(CommandsTest, AGatherThatAnEarlierGenerationBeganLeavesNothingIfItIsCancelled) {
  log_ = {Numbered(1, GatherTo("/state.pt"), 9), Numbered(2, CancelOf(1))};
  log_[0].set_begun(true);
  EXPECT_TRUE(commands_->Apply(2).ok());
  EXPECT_THAT(effects_.done_, ElementsAre("clean up beside /state.pt"));
  EXPECT_THAT(ended_, ElementsAre("1 OPERATION_CANCELLED", "2 done"));
}

TEST_F(CommandsTest, AGatherIsLeftToTheNextGenerationWhereTheJobLeavesItsNodes) {
  effects_.in_background_ = true;
  EXPECT_TRUE(Apply({GatherTo("/state.pt")}));
  ASSERT_TRUE(commands_->EndHere().ok());
  effects_.WriteFiles();
  EXPECT_THAT(ended_, IsEmpty()) << "it is not done, and not cancelled";
}

TEST_F(CommandsTest, AGatherWhoseFileIsWrittenIsNotCancelled) {
  EXPECT_TRUE(Apply({GatherTo("/state.pt")}));
  log_.push_back(Numbered(2, CancelOf(1)));
  EXPECT_TRUE(commands_->Apply(2).ok());
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 OPERATION_APPLIED"));
}

TEST_F(CommandsTest, EachIsCarriedOutAndEnds) {
  EXPECT_TRUE(Apply({RateOf(0.25), A(v1::SaveCheckpointCommand()), RulesOf({{true, "*"}}),
                     RulesOf({{true, "*"}}, /*dry_run=*/true), A(v1::RefreshCommand())}));
  EXPECT_THAT(effects_.done_, ElementsAre("call", "save", "rules of 3", "foresee", "refresh"));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done", "3 done", "4 done", "5 done"));
  EXPECT_EQ(session_state_.learning_rate, 0.25);
  EXPECT_EQ(session_state_.applied.size(), 5);
}

TEST_F(CommandsTest, AStopSavesAndLeavesTheRest) {
  EXPECT_TRUE(Apply({A(v1::StopCommand()), A(v1::RefreshCommand())}));
  EXPECT_THAT(effects_.done_, ElementsAre("call", "last save"));
  EXPECT_TRUE(session_state_.stopped);
  EXPECT_FALSE(session_state_.preempted);
}

TEST_F(CommandsTest, WhoGoesOnElsewhereSavesWhereThereIsAnythingToSave) {
  // The next session continues from an older checkpoint.
  effects_.files_ = absl::ResourceExhaustedError("full");
  ASSERT_TRUE(commands_->EndHere().ok());
  EXPECT_THAT(effects_.done_, ElementsAre("call", "last save"));
  EXPECT_TRUE(session_state_.preempted);
  effects_.done_.clear();
  session_state_.step = 0;
  ASSERT_TRUE(commands_->EndHere().ok());
  EXPECT_THAT(effects_.done_, ElementsAre("call"));
}

TEST_F(CommandsTest, AHaltWaitsForTheNextCommandsOrForTheJobsMove) {
  log_ = {Numbered(1, A(v1::PauseCommand())), Numbered(2, A(v1::ResumeCommand()))};
  RollCallPlan nothing, resumed;
  nothing.apply_commands = 1;
  resumed.apply_commands = 2;
  effects_.plans_ = {nothing, resumed};
  ASSERT_TRUE(commands_->Apply(1).ok());
  EXPECT_THAT(effects_.done_, ElementsAre("call", "call"));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done"));
  log_.push_back(Numbered(3, A(v1::PauseCommand())));
  RollCallPlan moves;
  moves.preempted = true;
  effects_.plans_ = {moves};
  ASSERT_TRUE(commands_->Apply(3).ok());
  EXPECT_TRUE(session_state_.preempted);
}

TEST_F(CommandsTest, SamplesAreLeftOutOrOnlyForeseen) {
  EXPECT_TRUE(Apply({SkipOf(5), SkipOf(6, /*dry_run=*/true), SkipOf(101)}));
  EXPECT_THAT(effects_.done_, ElementsAre("skip 5", "foresee skip 6", "skip 101"));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done", "3 NO_STEPS_LEFT"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(CommandsTest, ARepeatThatLeavesOutOtherSamplesIsTold) {
  Command same = SkipOf(5);
  same.set_replay(true);
  same.mutable_first_result()->mutable_skipped_data()->set_first(8);
  same.mutable_first_result()->mutable_skipped_data()->set_last(12);
  Command other = same;
  other.mutable_first_result()->mutable_skipped_data()->set_last(15);
  EXPECT_TRUE(Apply({same, other}));
  EXPECT_THAT(notices_, ElementsAre("OTHER_DATA_SKIPPED operation 2 (skip-data) is repeated with "
                                    "another batch, or after other steps: it leaves out samples 8 "
                                    "of epoch 0 to 12 of epoch 0, and the first time samples 8 of "
                                    "epoch 0 to 15 of epoch 0"));
}

TEST_F(CommandsTest, ARepeatThatLeavesOutNothingIsTold) {
  Command replay = SkipOf(101);
  replay.set_replay(true);
  replay.mutable_first_result()->mutable_skipped_data()->set_last(7);
  EXPECT_TRUE(Apply({replay}));
  EXPECT_THAT(ended_, ElementsAre("1 NO_STEPS_LEFT"));
  EXPECT_THAT(notices_, ElementsAre(testing::HasSubstr("it leaves out nothing, and the first")));
}

TEST_F(CommandsTest, WhatCannotBeDoneEndsWithItsReason) {
  OfAJobThat(/*trains=*/true, /*has_checkpoints=*/false);
  EXPECT_TRUE(
      Apply({A(v1::SaveCheckpointCommand()), A(v1::SetTrainabilityCommand()), CancelOf(9)}));
  EXPECT_THAT(ended_,
              ElementsAre("3 OPERATION_APPLIED", "1 NO_CHECKPOINTS", "2 TRAINABILITY_INVALID"));
  OfAJobThat(/*trains=*/false, /*has_checkpoints=*/false);
  ended_.clear();
  log_.push_back(Numbered(4, A(v1::RefreshCommand())));
  log_.push_back(Numbered(5, RateOf(1)));
  ASSERT_TRUE(commands_->Apply(5).ok());
  EXPECT_THAT(ended_, ElementsAre("4 NO_OPTIMIZER", "5 NO_OPTIMIZER"));
}

TEST_F(CommandsTest, AfterTheLastFitWhatNeedsTheOptimizerIsRefused) {
  session_state_.training_over = true;
  EXPECT_TRUE(Apply({A(v1::SaveCheckpointCommand()), ConsolidateTo("/m"), A(v1::RefreshCommand()),
                     RateOf(1), GatherTo("/o"), A(v1::SetTrainabilityCommand())}));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done", "3 TRAINING_OVER", "4 TRAINING_OVER",
                                  "5 TRAINING_OVER", "6 TRAINING_OVER"));
}

TEST_F(CommandsTest, APassAndASampleFollowACallAndEndWithTheirResults) {
  EXPECT_TRUE(Apply({StageOf("validate"), PromptOf({1}, 1)}));
  EXPECT_THAT(effects_.done_, ElementsAre("call", "evaluate validate", "call", "sample 1"));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done"));
  EXPECT_THAT(events_, ElementsAre("applied 1", "finished 1", "applied 2", "finished 2"));
}

TEST_F(CommandsTest, APassAndASampleNeedNoTrainingAndNoOptimizer) {
  OfAJobThat(/*trains=*/false, /*has_checkpoints=*/false);
  EXPECT_TRUE(Apply({StageOf("validate"), PromptOf({1}, 1)}));
  EXPECT_THAT(ended_, ElementsAre("1 done", "2 done"));
}

TEST_F(CommandsTest, APassOrASampleThatTheJobCannotGiveEndsWithItsReason) {
  v1::SampleCommand text;
  text.set_text("Once");
  EXPECT_TRUE(Apply({StageOf("test"), PromptOf({1}, 0), PromptOf({}, 1), A(text)}));
  EXPECT_THAT(ended_,
              ElementsAre("1 NO_DATA", "2 SAMPLE_INVALID", "3 CANNOT_GENERATE", "4 NO_TOKENIZER"));
  EXPECT_THAT(effects_.done_, IsEmpty());
}

TEST_F(CommandsTest, WhatAllRanksFindWrongEndsThePassAloneAndWhatOneFindsTheSession) {
  effects_.files_ = absl::InvalidArgumentError("every target is ignored");
  EXPECT_TRUE(Apply({StageOf("validate"), PromptOf({1}, 1)}));
  EXPECT_THAT(ended_, ElementsAre("1 ", "2 ")) << "errors without a reason";
  effects_.pass_ = absl::DataLossError("rank 1 cannot read");
  events_.clear();
  log_.push_back(Numbered(3, StageOf("validate")));
  EXPECT_EQ(commands_->Apply(3).status(), effects_.pass_);
  EXPECT_THAT(events_, ElementsAre("applied 3")) << "the next generation carries it out again";
}

TEST_F(CommandsTest, AFailedSaveEndsItsCommandAlone) {
  effects_.files_ = absl::ResourceExhaustedError("full");
  EXPECT_TRUE(Apply({A(v1::SaveCheckpointCommand()), A(v1::RefreshCommand())}));
  EXPECT_THAT(ended_, ElementsAre("1 ", "2 done"));
}

TEST_F(CommandsTest, WhatTheCheckpointHasIsToldAgain) {
  log_ = {Numbered(1, RateOf(1)), Numbered(2, RateOf(1))};
  schedule_ = CommandSchedule({.taken = 2, .waiting = {2}});
  session_state_.applied = {{1, 3}};
  commands_->TellUnreported();
  EXPECT_THAT(ended_, ElementsAre("1 done"));
}

TEST_F(CommandsTest, ACommandThatFailedBeforeTheCheckpointIsToldAgainAsFailed) {
  session_state_.training_over = true;
  EXPECT_TRUE(Apply({RateOf(1), StageOf("test")}));
  ended_.clear();
  commands_->TellUnreported();
  EXPECT_THAT(ended_, ElementsAre("1 TRAINING_OVER")) << "a pass is carried out again";
}

}  // namespace
}  // namespace muster::train
