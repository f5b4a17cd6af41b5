// Sessions in which validation decides the end of a stage and the best checkpoint. They are
// compared with plain loops over the losses of sessions without such rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/files/files.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/failing_save.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

using Losses = std::map<int64_t, double>;

constexpr int64_t kSteps = 12;

// Returns the step after which the stage ends.
int64_t EndOf(const Losses& validations, int64_t patience, double min_delta) {
  double best = std::numeric_limits<double>::infinity();
  int64_t passes = 0;
  for (const auto& [step, loss] : validations) {
    if (loss + min_delta < best) {
      best = loss;
      passes = 0;
    } else if (++passes == patience) {
      return step;
    }
  }
  return validations.rbegin()->first;
}

// Returns each step that was better than all earlier steps.
std::vector<int64_t> BestSteps(const Losses& validations, bool larger_is_better) {
  std::vector<int64_t> steps;
  std::optional<double> best;
  for (const auto& [step, loss] : validations) {
    if (best.has_value() && (larger_is_better ? loss <= *best : loss >= *best)) continue;
    best = loss;
    steps.push_back(step);
  }
  return steps;
}

class ImprovementTest : public SessionTest {
 protected:
  std::unique_ptr<Result> Good(const Job& job, int64_t generation = 1,
                               const std::vector<std::string>& checkpoints = {},
                               int64_t stop_after = 0) {
    auto run = RunSessions(job, 2, generation, checkpoints, stop_after);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    return run;
  }
  // Returns a job that validates every `every` steps.
  Job Validating(const StrategyConfig& strategy, int64_t every = 1) const {
    Job job = SmallJob();
    job.strategy = strategy;
    job.stages = {FitStage{kSteps, every}};
    return job;
  }
  // Returns a min_delta with which a stage with these losses and patience 2 ends in the middle.
  static double MinDelta(const Losses& validations) {
    double min_delta = validations.at(1);
    while (EndOf(validations, 2, min_delta) < kSteps / 2) min_delta *= 0.9;
    return min_delta;
  }
  static std::vector<std::string> Names(const std::vector<int64_t>& steps, int64_t generation = 1) {
    std::vector<std::string> names;
    for (const int64_t step : steps) {
      names.push_back("step-" + std::to_string(step) + "-g" + std::to_string(generation));
    }
    return names;
  }
  static std::vector<std::string> NamesOf(const std::vector<std::string>& paths) {
    std::vector<std::string> names;
    for (const std::string& path : paths) names.push_back(std::filesystem::path(path).filename());
    return names;
  }
  std::string Exported() const {
    return files::ReadFile(folder_ / "model.safetensors").value_or("");
  }
  void Clear() {
    std::filesystem::remove_all(folder_ / "ckpt");
    std::filesystem::remove_all(folder_ / "model.safetensors");
  }
};

TEST_F(ImprovementTest, AStageEndsWhereALoopOverTheLossesEndsItAndTheNextStagesRun) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Clear();
    Job job = Validating(strategy);
    const Losses validations = Good(job)->coordinator.validations();
    const double min_delta = MinDelta(validations);
    const int64_t end = EndOf(validations, 2, min_delta);
    ASSERT_GT(end, 3);
    ASSERT_LT(end, kSteps);

    const FitStage second{.steps = 5, .validate_every = 5};
    job.stages = {FitStage{end, 1}, ValidateStage{}, second};
    const auto expected = Good(job);
    FitStage first{kSteps, 1};
    first.passes.early_stopping = EarlyStopping{.patience = 2, .min_delta = min_delta};
    job.stages = {first, ValidateStage{}, second};
    job.checkpoint = Every(0);
    const auto run = Good(job);
    EXPECT_EQ(run->coordinator.losses(), expected->coordinator.losses());
    EXPECT_EQ(run->coordinator.validations(), expected->coordinator.validations());
    EXPECT_THAT(run->coordinator.stages(), ElementsAre("fit", "validate", "fit"));
    EXPECT_EQ(run->ends[0]->step, end + 5);
    EXPECT_EQ(run->ends[0]->ended_early, "") << "nothing is missing";
    EXPECT_EQ(NamesOf(run->coordinator.checkpoints()), Names({end + 5, end}))
        << "at each stage's end";
    EXPECT_THAT(run->coordinator.notice_messages().at("EARLY_STOPPED"),
                HasSubstr("stages[0].fit ends after step " + std::to_string(end) +
                          " instead of 12: the validation loss has not improved by more than"));
  }
}

// One session ends after each step, and another session continues.
TEST_F(ImprovementTest, SessionsThatGoOnDecideWhatOneSessionDecides) {
  for (const StrategyConfig& strategy : {Strategies().front(), Strategies().back()}) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = Validating(strategy);
    const double min_delta = MinDelta(Good(job)->coordinator.validations());
    FitStage first{kSteps, 1};
    first.passes.early_stopping = EarlyStopping{.patience = 2, .min_delta = min_delta};
    first.passes.keep_best = Criterion{};
    job.stages = {first, FitStage{.steps = 4, .validate_every = 1, .passes = first.passes}};
    job.checkpoint = Every(1);
    Clear();
    const auto undisturbed = Good(job);
    for (int64_t stop_after = 1; stop_after < undisturbed->ends[0]->step; ++stop_after) {
      SCOPED_TRACE(stop_after);
      Clear();
      const auto before = Good(job, 1, {}, stop_after);
      const auto after = Good(job, 2, before->coordinator.checkpoints());
      Losses losses = before->coordinator.losses();
      for (const auto& [step, loss] : after->coordinator.losses()) losses[step] = loss;
      EXPECT_EQ(losses, undisturbed->coordinator.losses());
      EXPECT_EQ(after->ends[0]->step, undisturbed->ends[0]->step);
      // The best checkpoint that the session finds, and the best checkpoints that it writes.
      std::vector<std::string> best = NamesOf(before->coordinator.best());
      std::vector<std::string> told = NamesOf(after->coordinator.best());
      if (!best.empty()) {
        ASSERT_FALSE(told.empty());
        EXPECT_EQ(told.front(), best.back());
        told.erase(told.begin());
      }
      for (std::string& name : told) {
        EXPECT_THAT(name, EndsWith("-g2"));
        best.push_back(name.substr(0, name.size() - 1) + "1");
      }
      EXPECT_EQ(best, NamesOf(undisturbed->coordinator.best()));
    }
    const int64_t end = undisturbed->coordinator.started().total_steps;
    EXPECT_EQ(end, kSteps + 4) << "as planned";
    // The number of steps that a session knows after the early end.
    const auto last = Good(job, 3, undisturbed->coordinator.checkpoints());
    EXPECT_EQ(last->coordinator.started().total_steps, undisturbed->ends[0]->step);
  }
}

TEST_F(ImprovementTest, APassThatIsLeftToTheNextSessionDecidesThere) {
  Job job = Validating(Strategies().front());
  const Losses validations = Good(job)->coordinator.validations();
  const double min_delta = MinDelta(validations);
  FitStage first{kSteps, 1};
  first.passes.early_stopping = EarlyStopping{.patience = 2, .min_delta = min_delta};
  first.passes.keep_best = Criterion{};
  job.stages = {first, FitStage{2, 0}};
  job.checkpoint = Every(0);
  const auto undisturbed = Good(job);
  const int64_t end = EndOf(validations, 2, min_delta);
  for (int64_t preempted = 1; preempted < end; ++preempted) {
    SCOPED_TRACE(preempted);
    Clear();
    preempt_in_step_ = preempted;
    const auto before = Good(job);
    ASSERT_TRUE(before->ends[0]->preempted);
    const int64_t step = before->ends[0]->step;
    EXPECT_EQ(step, preempted);
    EXPECT_EQ(before->coordinator.validations().count(step), 0u) << "the pass is left";
    preempt_in_step_ = 0;
    const auto after = Good(job, 2, before->coordinator.checkpoints());
    EXPECT_EQ(after->coordinator.validations().begin()->first, step);
    EXPECT_EQ(after->ends[0]->step, undisturbed->ends[0]->step);
    Losses losses = before->coordinator.losses();
    for (const auto& [number, loss] : after->coordinator.losses()) losses[number] = loss;
    EXPECT_EQ(losses, undisturbed->coordinator.losses());
    // The existing checkpoint does not include the pass. If the step is the best one, there is
    // another checkpoint.
    const std::vector<int64_t> best = BestSteps(validations, false);
    const bool is_best = std::find(best.begin(), best.end(), step) != best.end();
    const auto written = NamesOf(after->coordinator.checkpoints());
    EXPECT_EQ(std::count(written.begin(), written.end(), Names({step}, 2)[0]), is_best);
  }
}

TEST_F(ImprovementTest, TheBestCheckpointsAreThoseOfALoopAndTheExportIsThatOfARunToTheBest) {
  for (const StrategyConfig& strategy : Strategies()) {
    // Largest loss as the best one: the best checkpoint is not the last.
    for (const bool larger_is_better : {false, true}) {
      SCOPED_TRACE(StrategyName(strategy) + (larger_is_better ? " max" : " min"));
      Clear();
      Job job = Validating(strategy, 3);
      std::get<FitStage>(job.stages[0]).passes.keep_best =
          Criterion{.larger_is_better = larger_is_better};
      job.checkpoint = Every(0);
      job.weights_export = {.path = folder_ / "model.safetensors",
                            .from = ExportConfig::From::kBest};
      const auto run = Good(job);
      const auto steps = BestSteps(run->coordinator.validations(), larger_is_better);
      EXPECT_EQ(NamesOf(run->coordinator.best()), Names(steps));
      const std::string exported = Exported();
      EXPECT_EQ(run->ends[0]->step, kSteps);

      Clear();
      job.stages = {FitStage{steps.back(), 0}};
      job.weights_export->from = ExportConfig::From::kLast;
      Good(job);
      EXPECT_EQ(exported, Exported()) << "to the last byte";
    }
  }
}

TEST_F(ImprovementTest, WhereAveragesAreJudgedThoseOfTheBestCheckpointAreExported) {
  Job job = Validating(Strategies()[2], 3);
  job.evaluation.averages = AverageConfig{.decay = 0.5, .evaluate = true};
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{.larger_is_better = true};
  job.checkpoint = Every(0);
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  const auto steps = BestSteps(Good(job)->coordinator.validations(), true);
  const std::string exported = Exported();
  ASSERT_LT(steps.back(), kSteps);

  Clear();
  job.stages = {FitStage{steps.back(), 0}};
  job.weights_export->from = ExportConfig::From::kAverages;
  Good(job);
  EXPECT_EQ(exported, Exported());

  Clear();
  job.weights_export->from = ExportConfig::From::kLast;
  Good(job);
  EXPECT_NE(exported, Exported());
}

TEST_F(ImprovementTest, ABestCheckpointFromBeforeTheFirstAveragesIsExportedAsItWasJudged) {
  Job job = Validating(Strategies()[0], 3);
  job.evaluation.averages = AverageConfig{.decay = 0.5, .every = kSteps, .evaluate = true};
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{.larger_is_better = true};
  job.checkpoint = Every(0);
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  const auto steps = BestSteps(Good(job)->coordinator.validations(), true);
  const std::string exported = Exported();
  ASSERT_LT(steps.back(), kSteps);

  Clear();
  job.stages = {FitStage{steps.back(), 0}};
  job.weights_export->from = ExportConfig::From::kLast;
  Good(job);
  EXPECT_EQ(exported, Exported());
}

TEST_F(ImprovementTest, ABestCheckpointThatCannotBeWrittenLeavesTheOneBefore) {
  Job job = Validating(Strategies().front());
  job.stages = {FitStage{10, 4}};
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{};
  job.checkpoint = Every(0);
  job.checkpoint->background = true;
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  const FailingSave fault(folder_, 8);
  watch_ = fault;
  const auto run = Good(job);
  ASSERT_EQ(BestSteps(run->coordinator.validations(), false), (std::vector<int64_t>{4, 8}));
  EXPECT_NE(fault.reason(), "");
  EXPECT_EQ(NamesOf(run->coordinator.checkpoints()), Names({10, 4}));
  EXPECT_EQ(NamesOf(run->coordinator.best()), Names({4}));
  const std::string exported = Exported();
  watch_ = nullptr;
  Clear();
  job.stages = {FitStage{4, 0}};
  job.weights_export->from = ExportConfig::From::kLast;
  Good(job);
  EXPECT_EQ(exported, Exported());
}

TEST_F(ImprovementTest, ABestCheckpointThatIsGoneIsForgotten) {
  Job job = Validating(Strategies().front(), 2);
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{.larger_is_better = true};
  job.checkpoint = Every(0);
  const auto before = Good(job, 1, {}, /*stop_after=*/6);
  const std::string best = before->coordinator.best().back();
  const std::string newest = before->coordinator.checkpoints().front();
  ASSERT_NE(best, newest);
  std::filesystem::remove_all(best);
  const auto after = Good(job, 2, {newest});
  EXPECT_THAT(after->coordinator.notice_messages().at("BEST_CHECKPOINT_LOST"), HasSubstr(best));
  ASSERT_FALSE(after->coordinator.best().empty());
  const int64_t next = after->coordinator.validations().begin()->first;
  EXPECT_EQ(NamesOf(after->coordinator.best()).front(), Names({next}, 2)[0]) << "the next pass";
}

// The report of a found checkpoint does not mark the best one.
TEST_F(ImprovementTest, ASessionTellsTheBestCheckpointThatItStartsWith) {
  Job job = Validating(Strategies().front(), 2);
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{.larger_is_better = true};
  job.checkpoint = Every(0);
  const auto before = Good(job, 1, {}, /*stop_after=*/6);
  const auto after = Good(job, 2, {before->coordinator.checkpoints().front()});
  ASSERT_FALSE(after->coordinator.best().empty());
  EXPECT_EQ(after->coordinator.best().front(), before->coordinator.best().back());
  EXPECT_THAT(after->coordinator.notice_messages(), IsEmpty());
}

TEST_F(ImprovementTest, WithoutAPassThatComesTheBestCannotBeExported) {
  Job job = Validating(Strategies().front(), kSteps + 1);
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{};
  job.checkpoint = Every(0);
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kInvalidArgument) << end.status();
    EXPECT_THAT(std::string(end.status().message()), HasSubstr("export.from: found best"));
  }
  EXPECT_THAT(run->coordinator.losses(), IsEmpty()) << "it trained";
}

TEST_F(ImprovementTest, WithoutABestCheckpointTheExportFailsAndNothingIsLost) {
  Job job = Validating(Strategies().front(), kSteps);
  job.checkpoint = Every(0);
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{};
  // The best checkpoint is damaged before the job ends.
  watch_ = [&](const Event& event) {
    const auto* written = std::get_if<CheckpointWritten>(&event);
    if (written != nullptr) std::filesystem::resize_file(written->path + "/rank-0.safetensors", 9);
  };
  const auto damaged = RunSessions(job, 2);
  for (const auto& end : damaged->ends) {
    EXPECT_EQ(CauseOf(end.status()), Cause::kFinalSaveFailed) << end.status();
    EXPECT_THAT(std::string(end.status().message()), HasSubstr("step-12-g1"));
  }
  EXPECT_EQ(NamesOf(damaged->coordinator.checkpoints()), Names({kSteps}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.safetensors"));
}

TEST_F(ImprovementTest, AMetricThatTheModelDoesNotGiveIsRefusedAtTheStart) {
  Job job = Validating(Strategies().front());
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{Metric::kTopKAccuracy, true};
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(end.status().message()),
                HasSubstr("stages[0].fit.keep_best.metric: found top_k_accuracy"));
  }
  EXPECT_THAT(run->coordinator.losses(), IsEmpty());
}

TEST_F(ImprovementTest, ALimitedStageTrainsAsTheWholeOneUntilItEnds) {
  Job job = SmallJob();
  job.schedule = optim::Linear{.total_steps = 0};
  // An epoch has 12 steps.
  job.stages = {FitStage{.steps = 0, .validate_every = 1, .epochs = 2}, FitStage{3, 0}};
  const auto whole = Good(job);
  std::get<FitStage>(job.stages[0]).limit_steps = 5;
  std::get<FitStage>(job.stages[1]).limit_steps = 2;
  const auto limited = Good(job);
  EXPECT_EQ(limited->ends[0]->step, 7);
  EXPECT_EQ(limited->coordinator.started().total_steps, 7);
  EXPECT_THAT(limited->coordinator.validations(), IsEmpty()) << "no epoch ended";
  Losses first = whole->coordinator.losses();
  first.erase(first.upper_bound(7), first.end());
  EXPECT_EQ(limited->coordinator.losses(), first) << "the schedule ends where it would";
}

}  // namespace
}  // namespace muster::train
