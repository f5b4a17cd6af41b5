#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

nlohmann::json Options() {
  return {{"inputs", {2, 6, 5}}, {"widths", {3, 4}}, {"blocks", {1, 2}}, {"classes", 7}};
}

std::unique_ptr<Model> Make(const nlohmann::json& options = Options(), uint64_t seed = 1) {
  auto model = CreateFromJson("convnet", options, seed);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

at::Tensor Images(at::IntArrayRef shape = {4, 2, 6, 5}) {
  return at::arange(4 * 60, at::kFloat).mul_(12.9898).sin_().view(shape);
}

std::vector<at::Tensor> Copies(const Model& model) {
  std::vector<at::Tensor> copies;
  for (const Buffer& buffer : model.Buffers()) copies.push_back(buffer.tensor.clone());
  return copies;
}

// torchvision's named_parameters() and named_buffers() of the same ResNet, in their order.
TEST(ConvnetTest, HasTorchvisionsNamesInForwardOrder) {
  const auto model = Make();
  std::string parameters;
  for (const Parameter& parameter : model->Parameters()) {
    parameters += parameter.name + " ";
    for (const int64_t size : parameter.tensor.sizes()) parameters += std::to_string(size) + ",";
    parameters += "\n";
  }
  EXPECT_EQ(parameters,
            "conv1.weight 3,2,3,3,\n"
            "bn1.weight 3,\nbn1.bias 3,\n"
            "layer1.0.conv1.weight 3,3,3,3,\n"
            "layer1.0.bn1.weight 3,\nlayer1.0.bn1.bias 3,\n"
            "layer1.0.conv2.weight 3,3,3,3,\n"
            "layer1.0.bn2.weight 3,\nlayer1.0.bn2.bias 3,\n"
            "layer2.0.conv1.weight 4,3,3,3,\n"
            "layer2.0.bn1.weight 4,\nlayer2.0.bn1.bias 4,\n"
            "layer2.0.conv2.weight 4,4,3,3,\n"
            "layer2.0.bn2.weight 4,\nlayer2.0.bn2.bias 4,\n"
            "layer2.0.downsample.0.weight 4,3,1,1,\n"
            "layer2.0.downsample.1.weight 4,\nlayer2.0.downsample.1.bias 4,\n"
            "layer2.1.conv1.weight 4,4,3,3,\n"
            "layer2.1.bn1.weight 4,\nlayer2.1.bn1.bias 4,\n"
            "layer2.1.conv2.weight 4,4,3,3,\n"
            "layer2.1.bn2.weight 4,\nlayer2.1.bn2.bias 4,\n"
            "fc.weight 7,4,\nfc.bias 7,\n");
  std::string buffers;
  for (const Buffer& buffer : model->Buffers()) {
    if (buffer.name.find("bn1.r") == 0 || buffer.name.find("bn1.n") == 0)
      buffers += buffer.name + " ";
    if (buffer.name.find("downsample") != std::string::npos) buffers += buffer.name + " ";
  }
  EXPECT_EQ(buffers,
            "bn1.running_mean bn1.running_var bn1.num_batches_tracked "
            "layer2.0.downsample.1.running_mean layer2.0.downsample.1.running_var "
            "layer2.0.downsample.1.num_batches_tracked ");
  EXPECT_EQ(model->Buffers().size(), 3u * 8);
}

TEST(ConvnetTest, UnitsAreTheStemEachBlockAndTheHead) {
  const auto model = Make();
  std::string names;
  for (const auto& unit : model->root().children()) names += unit->name() + " ";
  EXPECT_EQ(names, "stem layer1.0 layer2.0 layer2.1 fc ");
}

TEST(ConvnetTest, InitialValuesAreTorchvisions) {
  const auto model =
      Make({{"inputs", {3, 8, 8}}, {"widths", {32, 48}}, {"blocks", {1, 1}}, {"classes", 500}});
  for (const Parameter& parameter : model->Parameters()) {
    const at::Tensor& values = parameter.tensor;
    if (values.dim() == 4) {  // kaiming_normal_, fan_out, relu
      const double deviation = std::sqrt(2.0 / (values.size(0) * values.size(2) * values.size(3)));
      const double error = deviation / std::sqrt(2.0 * values.numel());  // of a sample's deviation
      EXPECT_NEAR(values.std().item<double>(), deviation, 5 * error) << parameter.name;
      EXPECT_NEAR(values.mean().item<double>(), 0, 5 * deviation / std::sqrt(values.numel()));
    } else if (parameter.name.rfind("fc.", 0) == 0) {
      const double bound = 1 / std::sqrt(48.0);
      EXPECT_LE(values.abs().max().item<double>(), bound);
      EXPECT_GT(values.abs().max().item<double>(), 0.95 * bound);
    } else {
      const float expected = parameter.name.find("weight") != std::string::npos ? 1 : 0;
      EXPECT_TRUE(values.eq(expected).all().item<bool>()) << parameter.name;
    }
  }
  for (const Buffer& buffer : model->Buffers()) {
    const int expected = buffer.name.find("running_var") != std::string::npos ? 1 : 0;
    EXPECT_TRUE(buffer.tensor.eq(expected).all().item<bool>()) << buffer.name;
    const bool count = buffer.name.find("num_batches") != std::string::npos;
    EXPECT_EQ(buffer.tensor.scalar_type(), count ? at::kLong : at::kFloat) << buffer.name;
  }
}

TEST(ConvnetTest, InitialValuesDependOnSeedAndNameAlone) {
  const auto model = Make();
  const auto wider =
      Make({{"inputs", {2, 9, 9}}, {"widths", {3, 5}}, {"blocks", {1, 1}}, {"classes", 7}});
  EXPECT_TRUE(model->Parameters()[3].tensor.equal(wider->Parameters()[3].tensor));
  EXPECT_FALSE(model->Parameters()[3].tensor.equal(Make(Options(), 2)->Parameters()[3].tensor));
  EXPECT_FALSE(model->Parameters()[3].tensor.equal(model->Parameters()[6].tensor));
}

TEST(ConvnetTest, TakesRowsOfAnyShape) {
  const auto model = Make();
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  const at::Tensor logits = model->Logits(Images(), context);
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{4, 7}));
  EXPECT_TRUE(model->Logits(Images({4, 60}), context).equal(logits));
  EXPECT_TRUE(model->Logits(Images({4, 12, 5}), context).equal(logits));
  EXPECT_EQ(model->Input().row_elements, 60);
  EXPECT_EQ(model->Input().classes, 7);
  const Batch batch = {Images({4, 60}), at::zeros({4}, at::kLong)};
  EXPECT_TRUE(model->CheckBatch(batch).ok());
  EXPECT_EQ(model->Loss(batch, context).terms, 4);
}

// The stem's statistics after a forward, by the definition: momentum 0.1, the variance over n - 1.
TEST(ConvnetTest, TrainingForwardsMoveTheStatistics) {
  const auto model = Make();
  const at::Tensor weight = model->Parameters()[0].tensor;
  weight.detach().zero_();
  weight.detach().select(2, 1).select(2, 1).select(1, 0).fill_(3);  // y = 3 x of channel 0
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  std::map<std::string, at::Tensor> buffers;
  for (const Buffer& buffer : model->Buffers()) buffers[buffer.name] = buffer.tensor;
  const at::Tensor values = Images().select(1, 0).mul(3).to(at::kDouble);
  double mean = 0, variance = 1;
  for (int forward = 1; forward <= 3; ++forward) {
    model->Logits(Images(), context);
    mean = 0.9 * mean + 0.1 * values.mean().item<double>();
    variance = 0.9 * variance + 0.1 * values.var().item<double>();
    for (int channel = 0; channel < 3; ++channel) {
      EXPECT_NEAR(buffers["bn1.running_mean"][channel].item<double>(), mean, 1e-6);
      EXPECT_NEAR(buffers["bn1.running_var"][channel].item<double>(), variance, 1e-5);
    }
    for (const auto& [name, tensor] : buffers) {
      if (tensor.scalar_type() == at::kLong) EXPECT_EQ(tensor.item<int64_t>(), forward) << name;
    }
  }
}

TEST(ConvnetTest, EvaluationUsesTheStatisticsAndLeavesThemAlone) {
  const auto model = Make();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const at::Tensor training = model->Logits(Images(), context);
  const auto before = Copies(*model);
  context.set_mode(Mode::kEvaluate);
  const at::Tensor evaluated = model->Logits(Images(), context);
  const auto after = Copies(*model);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(after[i].equal(before[i])) << model->Buffers()[i].name;
  }
  EXPECT_GT((training - evaluated).abs().max().item<float>(), 1e-3);
  // With the statistics of the batch, the result of a row would depend on the other rows.
  const at::Tensor alone = model->Logits(Images().narrow(0, 2, 1), context);
  EXPECT_LT((alone[0] - evaluated[2]).abs().max().item<float>(), 1e-5);
  // The result depends on the statistics.
  for (const Buffer& buffer : model->Buffers()) {
    if (buffer.name == "layer2.1.bn2.running_mean") buffer.tensor.add_(1);
  }
  EXPECT_GT((model->Logits(Images(), context) - evaluated).abs().max().item<float>(), 1e-2);
}

TEST(ConvnetTest, EveryParameterGetsAGradient) {
  const auto model = Make();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  model->Loss({Images(), at::arange(4, at::kLong)}, context).mean_loss.backward();
  for (const Parameter& parameter : model->Parameters()) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.tensor.grad().abs().max().item<float>(), 0) << parameter.name;
  }
}

TEST(ConvnetTest, OneValuePerChannelCannotBeTrainedOn) {
  const auto model =
      Make({{"inputs", {1, 2, 1}}, {"widths", {3, 4}}, {"blocks", {1, 1}}, {"classes", 2}});
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  EXPECT_THROW(model->Logits(at::zeros({1, 2}), context), ModelError);
  EXPECT_NO_THROW(model->Logits(at::zeros({2, 2}), context));
  context.set_mode(Mode::kEvaluate);
  EXPECT_NO_THROW(model->Logits(at::zeros({1, 2}), context));
}

// The images have 6 x 5 pixels in the stem and stage 1, and 3 x 3 in stage 2.
TEST(ConvnetTest, CountsItsOperations) {
  const double stem = 30 * 2 * 3 * 9;
  const double layer1 = 30 * 2 * (3 * 3 * 9);
  const double layer2 = 9 * (3 * 4 + 3 * 4 * 9 + 3 * (4 * 4 * 9));
  EXPECT_EQ(Make()->ForwardFlops(), 2 * (stem + layer1 + layer2 + 4 * 7));
}

}  // namespace
}  // namespace muster::models
