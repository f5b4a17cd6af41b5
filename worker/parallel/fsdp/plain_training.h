// Training of a model with fsdp on two ranks beside an independent run, for tests.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_PLAIN_TRAINING_H_
#define MUSTER_WORKER_PARALLEL_FSDP_PLAIN_TRAINING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {

// Returns the loss of a rank in a step. `net` has the class of the call of ExpectPlainTraining.
template <typename Net>
using LossOfRank =
    std::function<at::Tensor(Net& net, models::ForwardContext& context, int rank, int64_t step)>;

// Runs three steps of SGD on two ranks, and a run in one process without a strategy. That run adds
// the gradients of the ranks in their order. After each step the parameters must have the same bits
// in both runs, and the same parameters must be unused. Net has no buffers. recompute: all children
// of the root are recomputed.
template <typename Net>
void ExpectPlainTraining(const LossOfRank<Net>& loss, bool recompute, const FsdpOptions& options) {
  constexpr double kRate = 0.05;
  RunRanks(2, [&](comm::Communicator& ranks) {
    Net net, plain;
    FsdpOptions own = options;
    if (ranks.rank() != 0) own.trace = nullptr;  // the events of one rank are enough
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, own);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    if (recompute) {
      std::vector<const models::Unit*> units;
      for (const auto& child : net.children()) units.push_back(child.get());
      context->Recompute(units);
    }
    models::ForwardContext plainly(models::Mode::kTrain, models::MakeGenerator(1));
    const auto expected = plain.Parameters();
    for (int64_t step = 0; step < 3; ++step) {
      (*strategy)->BeginStep({step, 2.0});
      (*strategy)->BeginMicroBatch(true);
      loss(net, *context, ranks.rank(), step).backward();
      const absl::Status status = (*strategy)->FinishBackward();
      ASSERT_TRUE(status.ok()) << status;
      std::vector<at::Tensor> sums(expected.size());
      for (int rank = 0; rank < 2; ++rank) {
        for (const auto& [name, tensor] : expected) at::Tensor(tensor).mutable_grad().reset();
        loss(plain, plainly, rank, step).backward();
        for (size_t i = 0; i < sums.size(); ++i) {
          const at::Tensor& gradient = expected[i].tensor.grad();
          if (!gradient.defined()) continue;
          sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
        }
      }
      const c10::NoGradGuard no_grad;
      for (size_t i = 0; i < sums.size(); ++i) {
        if (sums[i].defined()) at::Tensor(expected[i].tensor).sub_(sums[i] / 2.0, kRate);
      }
      const std::vector<Piece>& pieces = (*strategy)->pieces();
      for (size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = pieces[i];
        EXPECT_EQ((*strategy)->unused()[i].defined(), !sums[piece.parameter].defined())
            << expected[piece.parameter].name << " in step " << step;
        at::Tensor(piece.tensor).sub_(piece.tensor.grad(), kRate);
        EXPECT_TRUE(
            SameBits(piece.tensor, expected[piece.parameter].tensor.detach().reshape({-1}).narrow(
                                       0, piece.begin, piece.tensor.numel())))
            << expected[piece.parameter].name << " in step " << step;
      }
      (*strategy)->FinishUpdate();
    }
  });
}

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_PLAIN_TRAINING_H_
