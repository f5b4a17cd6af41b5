#include "worker/train/step/trained_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<models::Parameter> Three() {
  std::vector<models::Parameter> parameters;
  for (const char* name : {"a.weight", "a.bias", "b.weight"}) {
    parameters.push_back({name, at::zeros({2}).requires_grad_(true)});
  }
  return parameters;
}

std::unique_ptr<TrainedParameters> Make(const std::vector<models::Parameter>& parameters,
                                        const std::vector<TrainableRule>& rules = {}) {
  auto made = TrainedParameters::Create(parameters, rules);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Returns the flags of the tensors, such as "101".
std::string Flags(const std::vector<models::Parameter>& parameters) {
  std::string text;
  for (const auto& parameter : parameters) text += parameter.tensor.requires_grad() ? '1' : '0';
  return text;
}

void Flip(const models::Parameter& parameter) {
  at::Tensor(parameter.tensor).requires_grad_(!parameter.tensor.requires_grad());
}

TEST(TrainedParameters, OfTheRulesThatFitTheLastOneDecides) {
  const auto parameters = Three();
  const auto trained = Make(parameters, {{true, "*"}, {false, "*.bias"}, {false, "b.*"}});
  EXPECT_EQ(Flags(parameters), "011");
  EXPECT_THAT(trained->in_force(), ElementsAre(false, true, true));
  EXPECT_TRUE(trained->any());
  EXPECT_EQ(trained->version(), 1);
  EXPECT_FALSE(Make(Three(), {{true, "*"}})->any());
}

TEST(TrainedParameters, PatternsThatFitNothingAreNamedAndNothingChanges) {
  const auto parameters = Three();
  EXPECT_EQ(
      TrainedParameters::Create(parameters, {{true, "*"}, {true, "c"}, {false, "head*"}}).status(),
      absl::InvalidArgumentError("no parameter has a name that matches 'c'; no parameter has a "
                                 "name that matches 'head*'"));
  EXPECT_EQ(Flags(parameters), "111");
}

TEST(TrainedParameters, WhatIsWantedChangesNothingBeforeItIsBroughtIntoForce) {
  const auto parameters = Three();
  const auto trained = Make(parameters);
  const int64_t hash = trained->wanted_hash();
  at::Tensor(parameters[1].tensor).mutable_grad() = at::ones({2});
  trained->Want({true, false, true});
  EXPECT_NE(trained->wanted_hash(), hash);
  EXPECT_EQ(trained->first_change(), 1);
  EXPECT_EQ(Flags(parameters), "111");
  EXPECT_THAT(trained->in_force(), ElementsAre(true, true, true));
  trained->BringIntoForce();
  EXPECT_EQ(trained->first_change(), -1);
  EXPECT_EQ(Flags(parameters), "101");
  EXPECT_FALSE(parameters[1].tensor.grad().defined());
  EXPECT_EQ(trained->FirstFlipped(), -1);
}

TEST(TrainedParameters, AVersionIsMadeOfRulesOrOfTheNamesOfParameters) {
  const auto trained = Make(Three());
  const std::vector<TrainableRule> rules = {{true, "a.*"}};
  trained->Want(*trained->With(rules));
  trained->BringIntoForce();
  ASSERT_TRUE(trained->Add(rules).ok());
  EXPECT_EQ(trained->version(), 2);
  EXPECT_EQ(trained->rules(), rules);
  trained->NameByParameters();  // the rules already give this mask
  EXPECT_EQ(trained->version(), 2);
  trained->Want({false, true, true});
  trained->BringIntoForce();
  trained->NameByParameters();
  EXPECT_EQ(trained->version(), 3);
  EXPECT_EQ(trained->rules().back(), (TrainableRule{false, "a.bias"}));
}

TEST(TrainedParameters, ACheckpointsRulesAreWantedThen) {
  const auto parameters = Three();
  const auto trained = Make(parameters);
  trained->Restore(7, {{true, "b.weight"}});
  EXPECT_EQ(trained->version(), 7);
  EXPECT_EQ(trained->first_change(), 2);
  EXPECT_EQ(Flags(parameters), "111");
}

TEST(TrainedParameters, AFlagThatModelCodeFlipsIsFoundWhereverItIs) {
  std::vector<models::Parameter> parameters;
  for (int i = 0; i < 100; ++i) {
    parameters.push_back({std::to_string(i), at::zeros({1}).requires_grad_(i % 3 != 0)});
  }
  const auto trained = Make(parameters);
  EXPECT_EQ(trained->FirstFlipped(), -1);
  for (int i = 0; i < 100; ++i) {
    Flip(parameters[i]);
    EXPECT_EQ(trained->FirstFlipped(), i);
    Flip(parameters[i]);
  }
}

TEST(TrainedParameters, AFlagOfATensorThatNeverHadOneIsFoundToo) {
  const std::vector<models::Parameter> parameters = {{"a", at::zeros({1})}};
  const auto trained = Make(parameters);
  EXPECT_EQ(trained->FirstFlipped(), -1);
  Flip(parameters[0]);
  EXPECT_EQ(trained->FirstFlipped(), 0);
}

TEST(TrainedParameters, WhatIsHeldBackIsPendingUntilModelCodeUndoesIt) {
  const auto parameters = Three();
  const auto trained = Make(parameters);
  Flip(parameters[2]);
  EXPECT_TRUE(trained->HoldBack(true));
  EXPECT_EQ(Flags(parameters), "111");
  EXPECT_THAT(trained->PendingNames(), ElementsAre("b.weight"));
  trained->ShowPending();
  EXPECT_EQ(Flags(parameters), "110");
  EXPECT_FALSE(trained->HoldBack(true));
  EXPECT_EQ(Flags(parameters), "111");
  EXPECT_FALSE(trained->HoldBack(false));  // model code has not seen the pending flags
  EXPECT_THAT(trained->PendingNames(), ElementsAre("b.weight"));
  trained->ShowPending();
  Flip(parameters[2]);
  EXPECT_TRUE(trained->HoldBack(true));
  EXPECT_THAT(trained->PendingNames(), IsEmpty());
}

TEST(TrainedParameters, AChangeOfModelCodeThatDoesNotSeeThePendingOnesIsAdded) {
  const auto parameters = Three();
  const auto trained = Make(parameters);
  Flip(parameters[0]);
  EXPECT_TRUE(trained->HoldBack(false));
  Flip(parameters[2]);
  EXPECT_TRUE(trained->HoldBack(false));
  EXPECT_THAT(trained->PendingNames(), ElementsAre("a.weight", "b.weight"));
}

TEST(TrainedParameters, WhatAnOperatorChangesIsNotPendingAnyMore) {
  const auto parameters = Three();
  const auto trained = Make(parameters);
  trained->RestorePending({"a.weight", "b.weight"});
  trained->Want({false, true, true});
  trained->BringIntoForce();
  EXPECT_THAT(trained->PendingNames(), ElementsAre("b.weight"));
  EXPECT_THAT(trained->TakePending(), ElementsAre(false, true, false));
  EXPECT_THAT(trained->PendingNames(), IsEmpty());
  EXPECT_THAT(trained->TakePending(), ElementsAre(false, true, true));
}

}  // namespace
}  // namespace muster::train
