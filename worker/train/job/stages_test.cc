#include "worker/train/job/stages.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/data/timeline.h"

namespace muster::train {
namespace {

// Returns "fit 0-10", "validate" and "test", comma-separated.
std::string Print(const std::vector<PlannedStage>& stages) {
  return absl::StrJoin(stages, ", ", [](std::string* out, const PlannedStage& stage) {
    const auto* fit = std::get_if<FitUntil>(&stage.what);
    const bool test = std::holds_alternative<TestStage>(stage.what);
    *out += fit != nullptr ? absl::StrCat("fit ", fit->begin, "-", fit->end)
            : test         ? "test"
                           : "validate";
  });
}

// Returns a timeline in which every epoch has this number of steps.
data::Timeline EpochsOf(int64_t steps) {
  return data::Timeline({{.step = 0, .position = {}, .pace = {steps, 1, data::Last::kDrop}}});
}

// Returns the steps of a fit stage that a validation pass follows.
std::string PassesOf(const PlannedStage& stage) {
  const auto& fit = std::get<FitUntil>(stage.what);
  std::vector<int64_t> steps;
  for (int64_t step = fit.begin; step <= fit.end; ++step) {
    if (fit.validate.Has(step)) steps.push_back(step);
  }
  return absl::StrJoin(steps, ",");
}

std::string Remaining(const std::vector<Stage>& stages, int64_t step, const StagesDone& done = {}) {
  return Print(RemainingStages(PlanStages(stages, {}), step, done));
}

TEST(RemainingStages, ContinueWhereTheStepsEnded) {
  const std::vector<Stage> stages = {ValidateStage{}, FitStage{10, 0}, TestStage{}, FitStage{5, 2},
                                     ValidateStage{}};
  EXPECT_EQ(Remaining(stages, 0), "validate, fit 0-10, test, fit 10-15, validate");
  EXPECT_EQ(Remaining(stages, 4), "fit 0-10, test, fit 10-15, validate");
  EXPECT_EQ(Remaining(stages, 10), "test, fit 10-15, validate");
  EXPECT_EQ(Remaining(stages, 12), "fit 10-15, validate");
  EXPECT_EQ(Remaining(stages, 15), "validate");
}

TEST(RemainingStages, AreNotThoseThatAreOverAtThisStep) {
  const std::vector<Stage> stages = {TestStage{}, FitStage{10, 0}, ValidateStage{},
                                     TestStage{}, FitStage{5, 0},  TestStage{}};
  EXPECT_EQ(Remaining(stages, 0, {1, 0}), "fit 0-10, validate, test, fit 10-15, test");
  EXPECT_EQ(Remaining(stages, 10, {3, 10}), "test, fit 10-15, test");
  EXPECT_EQ(Remaining(stages, 10, {4, 10}), "fit 10-15, test");
  EXPECT_EQ(Remaining(stages, 15, {6, 15}), "");
  // Stages that were over after another step say nothing about the state at this start.
  EXPECT_EQ(Remaining(stages, 10, {6, 15}), "validate, test, fit 10-15, test");
  EXPECT_EQ(Remaining(stages, 15, {4, 10}), "test");
  EXPECT_EQ(Remaining(stages, 12, {4, 10}), "fit 10-15, test");
}

TEST(RemainingStages, KeepTheirOptionsAndPlaces) {
  const auto stages = RemainingStages(PlanStages({ValidateStage{}, FitStage{10, 3}}, {}), 2);
  EXPECT_EQ(std::get<FitUntil>(stages[0].what).validate.period, 3);
  EXPECT_EQ(stages[0].index, 1);
  EXPECT_EQ(stages[0].begin, 0);
}

TEST(PlanStages, AnEpochIsAsManyStepsAsTheDataGive) {
  const std::vector<Stage> stages = {FitStage{.steps = 5},
                                     FitStage{.steps = 0, .validate_every = 2, .epochs = 3},
                                     TestStage{}, FitStage{.steps = 2}};
  EXPECT_TRUE(CountsInEpochs(stages));
  const auto planned = PlanStages(stages, EpochsOf(7));
  EXPECT_EQ(Print(planned), "fit 0-5, fit 5-26, test, fit 26-28");
  EXPECT_EQ(PassesOf(planned[1]), "19") << "two epochs";
  EXPECT_EQ(planned[2].begin, 26);
  EXPECT_EQ(TotalSteps(planned), 28);
}

TEST(PlanStages, AStageThatEndedEarlyIsThereToItsEndAndTheOthersFollow) {
  const std::vector<Stage> stages = {FitStage{10, 2}, TestStage{}, FitStage{8, 2}, TestStage{}};
  const auto planned = PlanStages(stages, {}, {{0, 4}});
  EXPECT_EQ(Print(planned), "fit 0-4, test, fit 4-12, test");
  EXPECT_EQ(planned[3].begin, 12);
  EXPECT_EQ(Print(PlanStages(stages, {}, {{0, 4}, {2, 6}})), "fit 0-4, test, fit 4-6, test");
  EXPECT_EQ(Print(RemainingStages(planned, 4)), "test, fit 4-12, test");
  // Changed data may have made the stage shorter.
  EXPECT_EQ(Print(PlanStages({FitStage{3, 0}, FitStage{2, 0}}, {}, {{0, 4}})), "fit 0-3, fit 3-5");
}

TEST(PlanStages, ALimitIsInSteps) {
  const std::vector<Stage> stages = {
      FitStage{.steps = 10, .limit_steps = 4}, FitStage{.steps = 3, .limit_steps = 4},
      FitStage{.steps = 0, .validate_every = 1, .epochs = 2, .limit_steps = 9}};
  const auto planned = PlanStages(stages, EpochsOf(7));
  EXPECT_EQ(Print(planned), "fit 0-4, fit 4-7, fit 7-16");
  EXPECT_EQ(PassesOf(planned[2]), "14");
  EXPECT_EQ(ScheduledSteps(planned), 27) << "without limits";
  EXPECT_EQ(ScheduledSteps(PlanStages(stages, EpochsOf(7), {{0, 2}})), 27) << "nor early ends";
}

// Epochs of 24 samples by 4 per step; from step 8 (epoch 1, sample 8) by 8 per step.
data::Timeline Larger() {
  return data::Timeline({{.step = 0, .position = {}, .pace = {24, 4, data::Last::kDrop}},
                   {.step = 8, .position = {1, 8}, .pace = {24, 8, data::Last::kDrop}}});
}

TEST(PlanStages, AnEpochIsOnePassWhateverTheStepsTake) {
  const std::vector<Stage> stages = {FitStage{.steps = 0, .validate_every = 1, .epochs = 3},
                                     FitStage{.steps = 0, .validate_every = 2, .epochs = 2}};
  const auto planned = PlanStages(stages, Larger());
  EXPECT_EQ(Print(planned), "fit 0-13, fit 13-19") << "6 steps, 2 and 2, 3, and twice 3";
  EXPECT_EQ(PassesOf(planned[0]), "10,13") << "6 was before";
  EXPECT_EQ(PassesOf(planned[1]), "19");
  EXPECT_EQ(ScheduledSteps(planned), 19);
  // The stages of another job over the same steps.
  const std::vector<Stage> other = {FitStage{.steps = 7}, FitStage{.steps = 0, .epochs = 1}};
  EXPECT_EQ(Print(PlanStages(other, Larger())), "fit 0-7, fit 7-11") << "from sample 4 to 4 or 8";
}

TEST(PassSteps, TheLastOneIsTheLastThatItHas) {
  for (const PassSteps& passes : {PassSteps{3, 7, 5}, PassSteps{4, 5, 1}, PassSteps{}}) {
    for (int64_t end = 0; end < 30; ++end) {
      int64_t last = 0;
      for (int64_t step = 1; step <= end; ++step) last = passes.Has(step) ? step : last;
      EXPECT_EQ(passes.LastUpTo(end), last) << end;
    }
  }
}

TEST(PassDueAtChange, WhereTheRestOfAnEpochIsDroppedThatTheFormerBatchHadNotDropped) {
  std::vector<data::Timeline::Span> spans = {
      {.step = 0, .position = {}, .pace = {24, 4, data::Last::kDrop}},
      {.step = 5, .position = {0, 20}, .pace = {24, 8, data::Last::kDrop}}};
  const std::vector<Stage> every = {FitStage{.steps = 0, .validate_every = 1, .epochs = 2}};
  const std::vector<Stage> second = {FitStage{.steps = 0, .validate_every = 2, .epochs = 2}};
  const auto due = [&spans](const std::vector<Stage>& stages) {
    const data::Timeline timeline(spans);
    return PassDueAtChange(stages, PlanStages(stages, timeline), timeline);
  };
  EXPECT_TRUE(due(every));
  EXPECT_FALSE(due(second));
  EXPECT_FALSE(due({FitStage{.steps = 9, .validate_every = 5}}));
  spans[1].pace.last = data::Last::kPad;
  EXPECT_FALSE(due(every)) << "a step follows in this epoch";
  spans[1] = {.step = 6, .position = {1, 0}, .pace = {24, 8, data::Last::kDrop}};
  EXPECT_FALSE(due(every)) << "it was due after step 6";
}

TEST(FitOfStep, IsTheOneThatDidTheStep) {
  const auto stages = PlanStages({FitStage{3, 0}, TestStage{}, FitStage{2, 0}}, {});
  EXPECT_FALSE(FitOfStep(stages, 0).has_value());
  EXPECT_EQ(FitOfStep(stages, 1)->stage, 0);
  EXPECT_EQ(FitOfStep(stages, 3)->stage, 0) << "the last one of the stage";
  EXPECT_EQ(FitOfStep(stages, 4)->stage, 2);
  EXPECT_FALSE(FitOfStep(stages, 6).has_value());
}

TEST(TotalSteps, CountsFitStagesOnly) {
  EXPECT_EQ(TotalSteps(PlanStages({FitStage{10, 0}, TestStage{}, FitStage{5, 0}}, {})), 15);
  EXPECT_EQ(TotalSteps(PlanStages({ValidateStage{}}, {})), 0);
  EXPECT_FALSE(AnyFit({ValidateStage{}, TestStage{}}));
  EXPECT_FALSE(CountsInEpochs({FitStage{10, 0}, TestStage{}}));
}

TEST(FitFollows, LooksBehindTheStage) {
  const auto stages = PlanStages({TestStage{}, FitStage{3, 0}, TestStage{}}, {});
  EXPECT_TRUE(FitFollows(stages, 0));
  EXPECT_FALSE(FitFollows(stages, 1));
  EXPECT_FALSE(FitFollows(stages, 2));
}

// Returns the due actions, such as "end validate save last".
std::string PrintDue(const Due& due) {
  std::vector<std::string> parts;
  if (due.end) parts.push_back("end");
  if (due.validate) parts.push_back("validate");
  if (due.save) parts.push_back("save");
  if (due.last_save) parts.push_back("last");
  if (due.export_weights) parts.push_back("export");
  EXPECT_EQ(due.any(), !parts.empty());
  return absl::StrJoin(parts, " ");
}

TEST(DueAfter, CountsValidationFromTheStagesBeginAndCheckpointsFromTheJobs) {
  const DueRules rules = {{.end = 17, .validate = {13, 16, 3}, .begin = 10}, true, 5, 0, 30};
  EXPECT_EQ(PrintDue(DueAfter(11, false, rules)), "");
  EXPECT_EQ(PrintDue(DueAfter(13, false, rules)), "validate");
  EXPECT_EQ(PrintDue(DueAfter(15, false, rules)), "save");
  EXPECT_EQ(PrintDue(DueAfter(16, false, rules)), "validate");
  EXPECT_EQ(PrintDue(DueAfter(17, false, rules)), "end save");
}

TEST(DueAfter, WeightsAreExportedDuringTrainingButNotTwiceAtItsEnd) {
  const DueRules rules = {{.end = 20, .begin = 10}, false, 0, 5, 25};
  EXPECT_EQ(PrintDue(DueAfter(14, false, rules)), "");
  EXPECT_EQ(PrintDue(DueAfter(15, false, rules)), "export");
  EXPECT_EQ(PrintDue(DueAfter(20, false, rules)), "end export") << "another stage follows";
  EXPECT_EQ(PrintDue(DueAfter(15, true, rules)), "end") << "the job ends";
  EXPECT_EQ(PrintDue(DueAfter(25, false, {{.end = 25, .begin = 20}, false, 0, 5, 25})), "end");
}

TEST(DueAfter, TheLastSaveIsThatOfTheEndOfTrainingHoweverItEnds) {
  DueRules rules = {{.end = 17}, true, 0, 0, 17};
  EXPECT_EQ(PrintDue(DueAfter(16, false, rules)), "");
  EXPECT_EQ(PrintDue(DueAfter(17, false, rules)), "end save last");
  EXPECT_EQ(PrintDue(DueAfter(3, true, rules)), "end save last");
  rules.checkpoints = false;
  EXPECT_EQ(PrintDue(DueAfter(17, false, rules)), "end");
}

TEST(ValidatesElsewhere, WhereTheJobComesBackToThisStep) {
  EXPECT_TRUE(ValidatesElsewhere({.validate = true}, false));
  EXPECT_TRUE(ValidatesElsewhere({.end = true, .validate = true}, true));
  EXPECT_FALSE(ValidatesElsewhere({.end = true, .validate = true}, false));
  EXPECT_FALSE(ValidatesElsewhere({.save = true}, true));
}

}  // namespace
}  // namespace muster::train
