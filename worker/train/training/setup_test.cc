#include "worker/train/training/setup.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/load_weights.h"
#include "worker/checkpoint/weights.h"
#include "worker/comm/local/local_group.h"
#include "worker/models/deferred_values.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"

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

// The reads are counted to show how much of the weights file a rank reads.
TEST(BuildStrategy, ARankOfFsdpReadsItsSliceOfTheWeightsAndNoMore) {
  const std::string path = ::testing::TempDir() + "/ranges.safetensors";
  Job job = SmallJob();
  *job.spec.mutable_model() =
      models::SpecFromText("mlp", R"({"inputs": 64, "hidden": [64, 64], "classes": 2})");
  int64_t whole = 0;
  {
    const auto model = *BuildModel(job);
    ASSERT_TRUE(checkpoint::SaveWeights(path, model->Parameters()).ok());
    for (const auto& parameter : model->Parameters()) whole += parameter.tensor.nbytes();
  }
  job.spec.mutable_model()->set_weights(path);
  std::optional<checkpoint::LoadedWeights> weights;
  const auto model = *BuildModel(job, nullptr, &weights);
  EXPECT_EQ(weights->bytes_read(), whole) << "without slices, each rank";
  job.strategy = parallel::FsdpOptions{.units = {"*"}};
  for (const int world_size : {1, 2, 4}) {
    std::vector<int64_t> bytes(world_size);
    RunRanks(world_size, [&](int rank, comm::Communicator&, comm::Communicator& gradients,
                             comm::Communicator& parameters) {
      models::DeferredValues deferred;
      std::optional<checkpoint::LoadedWeights> own;
      const auto slice = *BuildModel(job, &deferred, &own);
      EXPECT_EQ(own->bytes_read(), 0);
      const auto strategy =
          *BuildStrategy(job, *slice, {&gradients, &parameters}, nullptr,
                         [&deferred](const at::Tensor& tensor, int64_t begin, int64_t end) {
                           return deferred.Range(tensor, begin, end);
                         });
      bytes[rank] = own->bytes_read();
      for (const parallel::Piece& piece : strategy->store().shards()->held) {
        const at::Tensor expected = model->Parameters()[piece.parameter].tensor.detach().flatten();
        EXPECT_TRUE(piece.tensor.detach().equal(
            expected.slice(0, piece.begin, piece.begin + piece.tensor.numel())));
      }
    });
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), whole);
    for (const int64_t own : bytes) EXPECT_LE(own, whole / world_size + whole / 20);
  }
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
  scale.tensor.fill_(2);  // the tensors are live
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
  const ParameterSlots of_parameters = *SlotsFor(*job.optimizer, *model);
  const TrainingParts parts = {
      .strategy = strategy.get(), .optimizer = optimizer.get(), .slots = &of_parameters};
  for (const auto& item : TrainingState(*model, parts, 1).items) ++slots[item.slot];
  EXPECT_EQ(slots,
            (std::map<std::string, int>{
                {"param", 11}, {"buffer", 9}, {"exp_avg", 11}, {"exp_avg_sq", 11}, {"step", 11}}));
  // A parameter that model code has frozen stays in the optimizer.
  const Mask all(model->Parameters().size(), true);
  model->Parameters()[0].tensor.requires_grad_(false);
  TrainingParts masked = parts;
  masked.mask = &all;
  const auto state = TrainingState(*model, masked, 1);
  EXPECT_EQ(std::count_if(state.items.begin(), state.items.end(),
                          [](const auto& item) { return item.slot == "exp_avg"; }),
            11);
  // The tensors are live: restored values are the values in training.
  for (const auto& piece : TrainingState(*model, {}, 1).held) piece.tensor.fill_(7);
  for (const auto& [name, tensor] : model->Parameters())
    EXPECT_EQ(tensor.min().item<float>(), 7) << name;
  for (const auto& [name, tensor] : model->Buffers())
    EXPECT_EQ(tensor.min().item<float>(), 7) << name;
}

}  // namespace
}  // namespace muster::train
