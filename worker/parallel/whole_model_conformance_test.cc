// Errors of every strategy whose ranks hold all parameters: ranks differ, a rank is gone, calls of
// a step are wrong, or the strategy is destroyed during a step.
#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/item.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/variable.h"
#include "worker/comm/local/local_group.h"
#include "worker/parallel/strategy.h"
#include "worker/parallel/strategy_conformance.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

INSTANTIATE_TEST_SUITE_P(All, WholeModelConformance, EveryWholeModelStrategy(), StrategyName);

TEST_P(WholeModelConformance, WhatDiffersBetweenRanksIsNamed) {
  if (world_size() < 3) GTEST_SKIP() << "needs rank 2";
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto buffers = MakeBuffers();
    const auto strategy = Create(parameters, buffers, &ranks);
    if (ranks.rank() == 1) buffers[1].tensor.add_(1);
    EXPECT_EQ(std::string(strategy->VerifyParametersEqual(3).message()),
              "step 3: buffer 'count' differs from rank 0's on rank 1");
    if (ranks.rank() == 2) parameters[5].tensor.detach().view(-1)[38] += 1;
    EXPECT_EQ(std::string(strategy->VerifyParametersEqual(3).message()),
              "step 3: parameter 'last' differs from rank 0's on rank 2");
    if (ranks.rank() == 1) parameters[9].tensor.add_(1);  // frozen, and int64
    if (ranks.rank() == 2) parameters[5].tensor.detach().copy_(MakeParameters()[5].tensor.detach());
    EXPECT_EQ(std::string(strategy->VerifyParametersEqual(3).message()),
              "step 3: parameter 'table' differs from rank 0's on rank 1");
  });
}

TEST_P(WholeModelConformance, DestructionRemovesHooksAndGradientsAndLeavesAPlainModel) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    for (int round = 0; round < 2; ++round) {
      auto strategy = Create(parameters, {}, &ranks);
      EXPECT_NE(torch::autograd::impl::post_acc_grad_hooks(parameters[0].tensor), nullptr);
      strategy->BeginStep({0, 1.0});
      strategy->BeginMicroBatch(true);
      Loss(parameters, ranks.rank(), 0, 0).backward();
      ASSERT_TRUE(strategy->FinishBackward().ok());
      strategy.reset();
      for (const auto& parameter : parameters) {
        if (!parameter.tensor.requires_grad()) continue;
        EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(parameter.tensor), nullptr);
        EXPECT_FALSE(parameter.tensor.grad().defined());
      }
    }
    Loss(parameters, 0, 0, 0).backward();
    auto plain = MakeParameters();
    Loss(plain, 0, 0, 0).backward();
    EXPECT_FALSE(parameters[3].tensor.grad().defined());
    EXPECT_TRUE(SameBits(parameters[0].tensor.grad(), plain[0].tensor.grad()));
  });
}

TEST_P(WholeModelConformance, MayBeDestroyedWithinAStepAndWithParametersOnTheirWay) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    auto strategy = Create(parameters, MakeBuffers(), &ranks, kOneBucketEach);
    strategy->BeginStep({0, 1.0});
    strategy->BeginMicroBatch(true);
    Loss(parameters, ranks.rank(), 0, 0).backward();
    strategy.reset();  // with reductions and buffers in flight
    for (const auto& [name, tensor] : parameters) EXPECT_FALSE(tensor.grad().defined()) << name;

    strategy = Create(parameters, {}, &ranks, kOneBucketEach);
    strategy->BeginStep({1, 1.0});
    strategy->BeginMicroBatch(true);
    Loss(parameters, ranks.rank(), 1, 0).backward();
    ASSERT_TRUE(strategy->FinishBackward().ok());
    {
      c10::NoGradGuard no_grad;
      for (const Piece& piece : strategy->pieces()) {
        at::Tensor tensor = piece.tensor;
        tensor.fill_(2.5);
      }
    }
    strategy->FinishUpdate();
    strategy.reset();
    for (const auto& [name, tensor] : parameters) {
      if (!tensor.requires_grad() || tensor.numel() == 0) continue;
      EXPECT_EQ(tensor.detach().min().item().toDouble(), 2.5) << name;
      EXPECT_EQ(tensor.detach().max().item().toDouble(), 2.5) << name;
    }
  });
}

TEST_P(WholeModelConformance, APeerThatIsGoneFailsTheStepNamingBucketAndStep) {
  if (world_size() == 1) GTEST_SKIP() << "no peers";
  auto ranks = comm::LocalGroup::Create(world_size());
  ranks[1].reset();
  auto parameters = MakeParameters();
  const auto strategy = Create(parameters, {}, ranks[0].get());
  strategy->BeginStep({17, 2.0});
  strategy->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();  // throws nothing
  const absl::Status status = strategy->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("'bucket 0' at step 17: rank 1 is gone"),
            std::string::npos)
      << status;
}

TEST_P(WholeModelConformance, APeerThatIsGoneFailsTheBuffersToo) {
  if (world_size() == 1) GTEST_SKIP() << "no peers";
  auto ranks = comm::LocalGroup::Create(world_size());
  ranks[1].reset();
  const auto buffers = MakeBuffers();
  const auto strategy = Create({}, buffers, ranks[0].get());
  strategy->BeginStep({17, 1.0});
  strategy->BeginMicroBatch(true);
  const absl::Status status = strategy->FinishBackward();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()).rfind("rank 0: broadcast 'buffers' at step 17: ", 0), 0)
      << status;
}

TEST_P(WholeModelConformance, ASecondBackwardInTheLastMicroBatchIsAnErrorNotAWrongGradient) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto strategy = Create(parameters, {}, &ranks);
    strategy->BeginStep({4, 1.0});
    strategy->BeginMicroBatch(true);
    Loss(parameters, 0, 0, 0).backward();
    Loss(parameters, 0, 0, 0).backward();
    const absl::Status status = strategy->FinishBackward();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    strategy->BeginStep({5, 1.0});  // a new step has no error
    strategy->BeginMicroBatch(true);
    Loss(parameters, 0, 0, 0).backward();
    EXPECT_TRUE(strategy->FinishBackward().ok());
  });
}

TEST_P(WholeModelConformance, WhatDoesNotFitIsRefused) {
  auto ranks = comm::LocalGroup::Create(1);
  const auto code = [&](const std::vector<models::Parameter>& parameters,
                        const std::vector<models::Buffer>& buffers) {
    return implementation()
        .create(parameters, buffers, nullptr, ranks[0].get(), 1, {})
        .status()
        .code();
  };
  EXPECT_EQ(code({{"w", at::Tensor()}}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}, {{"b", at::Tensor()}}), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::parallel
