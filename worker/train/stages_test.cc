#include "worker/train/stages.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::train {
namespace {

// "fit 0-10" and "validate", comma-separated.
std::string Print(const std::vector<PlannedStage>& stages) {
  return absl::StrJoin(stages, ", ", [](std::string* out, const PlannedStage& stage) {
    const auto* fit = std::get_if<FitUntil>(&stage);
    *out += fit != nullptr ? absl::StrCat("fit ", fit->begin, "-", fit->end) : "validate";
  });
}

TEST(RemainingStages, ContinueWhereTheStepsEnded) {
  const std::vector<Stage> stages = {ValidateStage{}, FitStage{10, 0}, ValidateStage{},
                                     FitStage{5, 2}, ValidateStage{}};
  EXPECT_EQ(Print(RemainingStages(stages, 0)), "validate, fit 0-10, validate, fit 10-15, validate");
  EXPECT_EQ(Print(RemainingStages(stages, 4)), "fit 0-10, validate, fit 10-15, validate");
  EXPECT_EQ(Print(RemainingStages(stages, 10)), "validate, fit 10-15, validate");
  EXPECT_EQ(Print(RemainingStages(stages, 12)), "fit 10-15, validate");
  EXPECT_EQ(Print(RemainingStages(stages, 15)), "validate");
}

TEST(RemainingStages, KeepTheirOptions) {
  const auto stages = RemainingStages({FitStage{10, 3}}, 2);
  EXPECT_EQ(std::get<FitUntil>(stages[0]).validate_every, 3);
}

TEST(TotalSteps, CountsFitStagesOnly) {
  EXPECT_EQ(TotalSteps({FitStage{10, 0}, ValidateStage{}, FitStage{5, 0}}), 15);
  EXPECT_EQ(TotalSteps({ValidateStage{}}), 0);
}

// "end validate save last": what of it is due.
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
  const DueRules rules = {{.end = 17, .validate_every = 3, .begin = 10}, true, 5, 0, 30};
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
