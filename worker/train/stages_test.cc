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

}  // namespace
}  // namespace muster::train
