#include "common/trainability/trainability.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using Rules = std::vector<TrainableRule>;

Trainability Make(const Rules& rules = {}) {
  auto made = Trainability::Create({{.name = "wte.weight"},
                                    {.name = "h.0.weight"},
                                    {.name = "h.0.bias"},
                                    {.name = "h.1.weight"},
                                    {.name = "h.1.bias"},
                                    {.name = "table", .trained = false, .can_be_trained = false},
                                    {.name = "extra", .trained = false}},
                                   rules);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// A digit for each parameter: "1" if it is trained.
std::string Text(const Mask& mask) {
  std::string text;
  for (const bool trained : mask) text += trained ? '1' : '0';
  return text;
}

TEST(Trainability, WithoutRulesTheModelSays) {
  EXPECT_EQ(Text(Make().mask()), "1111100");
  EXPECT_EQ(Make().version(), 1);
}

TEST(Trainability, TheLastRuleThatFitsDecidesAndEachChangeIsAVersion) {
  Trainability trainability = Make({{true, "h.*"}, {false, "*bias"}});
  EXPECT_EQ(Text(trainability.mask()), "1010100");
  EXPECT_EQ(Text(*trainability.With({{false, "h.1.*"}})), "1011100");
  EXPECT_EQ(trainability.version(), 1);
  ASSERT_TRUE(trainability.Add({{false, "h.1.*"}}).ok());
  EXPECT_EQ(Text(trainability.mask()), "1011100");
  EXPECT_EQ(trainability.version(), 2);
}

TEST(Trainability, WhatCannotBeTrainedIsPassedOver) {
  EXPECT_EQ(Text(Make({{false, "*"}}).mask()), "1111101");
}

TEST(Trainability, RulesThatDecideNothingAreDropped) {
  Trainability trainability = Make({{true, "h.0.*"}, {true, "h.1.*"}});
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(trainability.Add({{i % 2 == 0, "h.*"}, {i % 2 == 1, "wte.*"}}).ok());
  }
  EXPECT_EQ(trainability.rules(), (Rules{{false, "h.*"}, {true, "wte.*"}}));
  EXPECT_EQ(Text(trainability.mask()), "0111100");
  EXPECT_EQ(trainability.version(), 101);
}

TEST(Trainability, WhatModelCodeDecidesBecomesRulesByName) {
  Trainability trainability = Make({{true, "h.*"}});
  Mask mask = trainability.mask();
  mask[1] = true;
  mask[6] = true;
  trainability.Take(mask);
  EXPECT_EQ(trainability.mask(), mask);
  EXPECT_EQ(trainability.version(), 2);
  EXPECT_EQ(trainability.rules(), (Rules{{true, "h.*"}, {false, "h.0.weight"}, {false, "extra"}}));
}

TEST(Trainability, PatternsThatFitNothingAreNamedWithNearOnesAndNothingChanges) {
  Trainability trainability = Make();
  const absl::Status status =
      trainability.Add({{true, "*"}, {true, "h.2.*"}, {true, "table"}, {true, "nothing"}});
  EXPECT_EQ(status, absl::InvalidArgumentError("no parameter has a name that matches 'h.2.*'; did "
                                               "you mean 'h.0.*'?; 'table' fits only parameters "
                                               "that are neither float32 nor float64, which are "
                                               "not trained; no parameter has a name that matches "
                                               "'nothing'"));
  EXPECT_EQ(trainability.version(), 1);
  EXPECT_EQ(Text(trainability.mask()), "1111100");
}

TEST(Trainability, GoesOnFromACheckpoint) {
  Trainability trainability = Make({{true, "wte.*"}});
  ASSERT_TRUE(trainability.Restore(7, {{true, "*bias"}}).ok());
  EXPECT_EQ(Text(trainability.mask()), "1101000");
  EXPECT_EQ(trainability.version(), 7);
}

TEST(Masks, FirstDifferenceAndHash) {
  EXPECT_EQ(FirstDifference({true, false}, {true, false}), -1);
  EXPECT_EQ(FirstDifference({true, false, true}, {true, true, false}), 1);
  EXPECT_EQ(MaskHash({true, false}), MaskHash({true, false}));
  EXPECT_NE(MaskHash({true, false}), MaskHash({false, true}));
}

}  // namespace
}  // namespace muster
