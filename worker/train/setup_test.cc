#include "worker/train/setup.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/comm/local/local_group.h"
#include "worker/models/spec_from_json.h"

namespace muster::train {
namespace {

Job SmallJob() {
  Job job;
  *job.spec.mutable_model() =
      models::SpecFromText("mlp", R"({"inputs": 4, "hidden": [3], "classes": 2})");
  job.optimizer = OptimizerConfig{1e-3, optim::AdamWOptions{}};
  job.schedule = optim::WarmupCosine{.warmup_steps = 2, .total_steps = 9};
  job.stages = {FitStage{9, 0}};
  return job;
}

TEST(BuildOptimizer, GivesEachParameterTheSettingsOfItsGroups) {
  Job job = SmallJob();
  job.optimizer = OptimizerConfig{
      0.5,
      optim::SgdOptions{.weight_decay = 0.25},
      {{.match = "*.bias", .weight_decay = 0}, {.match = "layers.1.*", .lr_scale = 0.5}}};
  const auto model = *BuildModel(job);
  const auto ranks = comm::LocalGroup::Create(1);
  const auto strategy = *BuildStrategy(job, *model, ranks[0].get());
  const auto optimizer = BuildOptimizer(*job.optimizer, *model, strategy->pieces());
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const std::map<std::string, float> factors = {{"layers.0.weight", 1 - 0.5 * 0.25},
                                                {"layers.0.bias", 1},
                                                {"layers.1.weight", 1 - 0.5 * 0.5 * 0.25},
                                                {"layers.1.bias", 1}};
  for (const auto& [name, tensor] : model->Parameters()) {
    tensor.detach().fill_(2);
    tensor.mutable_grad() = at::zeros_like(tensor);
  }
  ASSERT_TRUE((*optimizer)->Step(0.5).ok());
  for (const auto& [name, tensor] : model->Parameters()) {
    EXPECT_EQ(tensor.detach().flatten()[0].item<float>(), 2 * factors.at(name)) << name;
  }
}

TEST(BuildOptimizer, RefusesAPatternThatMatchesNothing) {
  Job job = SmallJob();
  job.optimizer->groups = {{.match = "layer.*", .lr_scale = 2}};
  const auto status = BuildOptimizer(*job.optimizer, **BuildModel(job), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("optimizer.groups[0].match: found 'layer.*'"),
            std::string::npos)
      << status;
}

TEST(TrainingState, HoldsTheLossScalerWhereThereIsOne) {
  const auto model = *BuildModel(SmallJob());
  optim::LossScaler scaler({.initial = 8});
  const checkpoint::State with = TrainingState(*model, {.scaler = &scaler}, 1);
  EXPECT_EQ(with.items.size(), TrainingState(*model, {}, 1).items.size() + 2);
  const checkpoint::HeldPiece& scale = with.held[with.held.size() - 2];
  EXPECT_EQ(Name(with.items[scale.item]), "scaler/scale");
  EXPECT_EQ(scale.tensor.item<float>(), 8);
  scale.tensor.fill_(2);  // live
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_EQ(Name(with.items.back()), "scaler/growth_tracker");
}

TEST(TrainingState, HoldsParametersBuffersAndTheOptimizersState) {
  Job job = SmallJob();
  *job.spec.mutable_model() = models::SpecFromText(
      "convnet", R"({"inputs": [1, 2, 2], "widths": [2], "blocks": [1], "classes": 2})");
  const auto model = *BuildModel(job);
  std::map<std::string, int> slots;
  const auto ranks = comm::LocalGroup::Create(1);
  const auto strategy = *BuildStrategy(job, *model, ranks[0].get());
  const auto optimizer = *BuildOptimizer(*job.optimizer, *model, strategy->pieces());
  for (const auto& item : TrainingState(*model, {strategy.get(), optimizer.get()}, 1).items)
    ++slots[item.slot];
  EXPECT_EQ(slots,
            (std::map<std::string, int>{
                {"param", 11}, {"buffer", 9}, {"exp_avg", 11}, {"exp_avg_sq", 11}, {"step", 11}}));
  // Code of the model that froze one does not change what the optimizer holds.
  const Mask all(model->Parameters().size(), true);
  model->Parameters()[0].tensor.requires_grad_(false);
  const auto state =
      TrainingState(*model, {strategy.get(), optimizer.get(), nullptr, nullptr, &all}, 1);
  EXPECT_EQ(std::count_if(state.items.begin(), state.items.end(),
                          [](const auto& item) { return item.slot == "exp_avg"; }),
            11);
  // They are live: what is restored is what trains.
  for (const auto& piece : TrainingState(*model, {}, 1).held) piece.tensor.fill_(7);
  for (const auto& [name, tensor] : model->Parameters())
    EXPECT_EQ(tensor.min().item<float>(), 7) << name;
  for (const auto& [name, tensor] : model->Buffers())
    EXPECT_EQ(tensor.min().item<float>(), 7) << name;
}

}  // namespace
}  // namespace muster::train
