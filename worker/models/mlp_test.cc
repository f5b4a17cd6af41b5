#include <cmath>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

std::unique_ptr<Model> Make() {
  auto model = CreateFromJson("mlp", {{"inputs", 4}, {"hidden", {3, 5}}, {"classes", 2}}, 1);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(MlpTest, LayersHaveTorchsNamesLayoutAndInitialRange) {
  const auto parameters = Make()->Parameters();
  ASSERT_EQ(parameters.size(), 6u);
  EXPECT_EQ(parameters[0].name, "layers.0.weight");
  EXPECT_EQ(parameters[3].name, "layers.1.bias");
  EXPECT_EQ(parameters[2].tensor.sizes(), (at::IntArrayRef{5, 3}));
  EXPECT_EQ(parameters[4].tensor.sizes(), (at::IntArrayRef{2, 5}));
  for (size_t i = 0; i < 6; ++i) {
    const double bound = 1 / std::sqrt(i < 2 ? 4.0 : i < 4 ? 3.0 : 5.0);
    EXPECT_LE(parameters[i].tensor.abs().max().item<double>(), bound);
    EXPECT_GT(parameters[i].tensor.abs().max().item<double>(), bound / 4);
  }
}

// All weights are 1 and all biases 0: y = relu(sum x) * 3 * 5.
TEST(MlpTest, ForwardIsLinearAndReluWithALinearEnd) {
  const auto model = Make();
  for (const Parameter& parameter : model->Parameters()) {
    parameter.tensor.detach().fill_(parameter.name.find("weight") != std::string::npos ? 1 : 0);
  }
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  at::Tensor rows = at::arange(8, at::kFloat).view({2, 2, 2});
  rows[1].neg_();
  const at::Tensor logits = model->Logits(rows, context);
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(logits[0][0].item<float>(), 90);
  EXPECT_EQ(logits[1][1].item<float>(), 0);
  const Batch batch = {rows, at::zeros({2}, at::kLong)};
  ASSERT_TRUE(model->CheckBatch(batch).ok());
  const LossOutput loss = model->Loss(batch, context);
  EXPECT_EQ(loss.terms, 2);
  EXPECT_NEAR(loss.mean_loss.item<float>(), std::log(2.0), 1e-6);
}

TEST(MlpTest, FlopsAreThoseOfTheMatrixProducts) {
  EXPECT_EQ(Make()->ForwardFlops(), 2 * (4 * 3 + 3 * 5 + 5 * 2));
}

TEST(MlpTest, ModelWithoutHiddenLayers) {
  const auto linear = CreateFromJson("mlp", {{"inputs", 4}, {"classes", 2}},
                                     1);  // as in a job file without `hidden`
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ((*linear)->Parameters().size(), 2u);
  EXPECT_EQ((*linear)->HuggingFaceConfig(), "");
}

TEST(MlpTest, RowsOfAnotherSizeAreRefused) {
  const Batch batch = {at::zeros({2, 5}), at::zeros({2}, at::kLong)};
  EXPECT_EQ(std::string(Make()->CheckBatch(batch).message()),
            "batch for mlp: expected inputs Float [B, ...] with 4 numbers per row and targets Long "
            "[B], found inputs Float [2, 5] and targets Long [2]");
}

}  // namespace
}  // namespace muster::models
