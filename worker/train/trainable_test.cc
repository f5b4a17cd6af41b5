#include "worker/train/trainable.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/models/spec_from_json.h"

namespace muster::train {
namespace {

std::unique_ptr<models::Model> Make() {
  auto model =
      models::CreateFromJson("mlp", {{"inputs", 3}, {"hidden", {4, 4}}, {"classes", 2}}, 1);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// "wbwbwb": of weights and biases in turn, "." where frozen.
std::string Trained(const models::Model& model) {
  std::string text;
  for (const auto& [name, tensor] : model.Parameters()) {
    text += !tensor.requires_grad() ? '.' : name.find("bias") == std::string::npos ? 'w' : 'b';
  }
  return text;
}

TEST(Trainable, OfTheRulesThatFitTheLastOneDecides) {
  const auto model = Make();
  EXPECT_EQ(Trained(*model), "wbwbwb");
  ASSERT_TRUE(ApplyRules({{true, "*"}, {false, "*bias"}, {true, "layers.1.*"}}, *model).ok());
  EXPECT_EQ(Trained(*model), ".b...b");
  ASSERT_TRUE(ApplyRules({{false, "layers.1.weight"}}, *model).ok());
  EXPECT_EQ(Trained(*model), ".bw..b");
}

TEST(Trainable, PatternsThatFitNothingAreNamedAndNothingChanges) {
  const auto model = Make();
  const absl::Status status =
      ApplyRules({{true, "*"}, {true, "layer.0"}, {false, "head*"}}, *model);
  EXPECT_EQ(status, absl::InvalidArgumentError(
                        "no parameter is named as 'layer.0'; no parameter is named as 'head*'"));
  EXPECT_EQ(Trained(*model), "wbwbwb");
}

}  // namespace
}  // namespace muster::train
