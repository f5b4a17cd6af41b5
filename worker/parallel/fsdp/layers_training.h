// Training of the model of layers.h by plain SGD, with a strategy and without, for tests.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_LAYERS_TRAINING_H_
#define MUSTER_WORKER_PARALLEL_FSDP_LAYERS_TRAINING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/strategy.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {

// Returns whether a parameter of four layers is frozen.
using Frozen = std::function<bool(const std::string& name)>;

inline const std::map<std::string, Frozen> kFrozen = {
    {"None", [](const std::string&) { return false; }},
    {"EveryOther",
     [](const std::string& name) {
       return name.rfind("layers.1", 0) == 0 || name.rfind("layers.3", 0) == 0;
     }},
    {"Parts",
     [](const std::string& name) { return name == "layers.0.weight" || name == "layers.2.bias"; }},
    {"First", [](const std::string& name) { return name.rfind("layers.0", 0) == 0; }},
    {"Last", [](const std::string& name) { return name.rfind("layers.3", 0) == 0; }},
    {"Root", [](const std::string& name) { return name == "scale"; }},
    {"AllButBiases",
     [](const std::string& name) { return name.find("bias") == std::string::npos; }},
};

inline void Freeze(const models::Unit& net, const Frozen& frozen) {
  for (const auto& [name, tensor] : net.Parameters()) {
    at::Tensor(tensor).requires_grad_(!frozen(name));
  }
}

inline at::Tensor LossOf(models::Unit& net, models::ForwardContext& context, int rank, int64_t step,
                         int micro_batch, bool input_requires_grad) {
  at::Tensor x = Numbers({5, Layers::kWidth}, 1000 * step + 100 * micro_batch + rank);
  x.requires_grad_(input_requires_grad);
  return context.Call(net, x).square().mean();
}

struct Setting {
  std::string frozen = "None";
  int world_size = 2;
  int micro_batches = 1;
  bool reshard_after_forward = true;
  bool input_requires_grad = false;
  bool twice = false;
  bool recompute = false;
};

inline void Recompute(const Layers& net, models::ForwardContext* context) {
  std::vector<const models::Unit*> units;
  for (const auto& child : net.children()) units.push_back(child.get());
  context->Recompute(units);
}

inline constexpr double kLearningRate = 0.05;

// Runs a step without a strategy: plain autograd for the samples of each rank, sums in rank order,
// and one division. Returns the gradients.
inline std::vector<at::Tensor> ReferenceStep(Layers& net, const Setting& setting, int64_t step) {
  models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(1));
  // Recomputation changes only the order in which the gradients of a unit's two calls are added.
  if (setting.recompute && setting.twice) Recompute(net, &context);
  const auto parameters = net.Parameters();
  std::vector<at::Tensor> sums(parameters.size());
  for (int rank = 0; rank < setting.world_size; ++rank) {
    for (const auto& parameter : parameters) at::Tensor(parameter.tensor).mutable_grad().reset();
    for (int m = 0; m < setting.micro_batches; ++m) {
      LossOf(net, context, rank, step, m, setting.input_requires_grad).backward();
    }
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].tensor.requires_grad()) continue;
      const at::Tensor gradient = parameters[i].tensor.grad();
      sums[i] = rank == 0 ? gradient.clone() : sums[i] + gradient;
    }
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!sums[i].defined()) continue;
    sums[i] = sums[i] / static_cast<double>(setting.world_size * setting.micro_batches);
    at::Tensor(parameters[i].tensor).detach().sub_(sums[i], kLearningRate);
  }
  return sums;
}

inline void TrainStep(Strategy& strategy, models::ForwardContext& context, Layers& net,
                      const Setting& setting, int rank, int64_t step) {
  strategy.BeginStep({step, static_cast<double>(setting.world_size * setting.micro_batches)});
  for (int m = 0; m < setting.micro_batches; ++m) {
    strategy.BeginMicroBatch(m + 1 == setting.micro_batches);
    LossOf(net, context, rank, step, m, setting.input_requires_grad).backward();
  }
  const absl::Status status = strategy.FinishBackward();
  ASSERT_TRUE(status.ok()) << status;
  const c10::NoGradGuard no_grad;
  for (const Piece& piece : strategy.pieces()) {
    at::Tensor(piece.tensor).sub_(piece.tensor.grad(), kLearningRate);
  }
  strategy.FinishUpdate();
}

inline std::vector<size_t> AllOf(const Layers& net) {
  std::vector<size_t> all;
  for (size_t i = 0; i < net.Parameters().size(); ++i) all.push_back(i);
  return all;
}

inline void ExpectParameters(Strategy& strategy, const Layers& net, const Layers& expected_net) {
  ASSERT_TRUE(strategy.store().Gather(AllOf(net)).ok());
  const auto found = net.Parameters();
  const auto expected = expected_net.Parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(SameBits(found[i].tensor.detach(), expected[i].tensor.detach()))
        << expected[i].name;
  }
  strategy.store().Release();
}

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_LAYERS_TRAINING_H_
