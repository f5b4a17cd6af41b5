// Code within a unit that runs on some ranks only.
#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr int kDepth = 7;
constexpr int64_t kWidth = Layers::kWidth;

// Uses its bias only if it is told so.
class Branch : public models::Unit {
 public:
  Branch(const std::string& name, uint64_t seed, const bool* biased) : Unit(name), biased_(biased) {
    AddParameter(name + ".weight", Numbers({kWidth, kWidth}, seed));
    AddParameter(name + ".bias", Numbers({kWidth}, seed + 100));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override {
    const at::Tensor y = at::linear(x, parameter(0)).tanh();
    return *biased_ ? y + parameter(1) : y;
  }

 private:
  const bool* const biased_;
};

class Branches : public models::Unit {
 public:
  Branches() : Unit("") {
    for (int i = 0; i < kDepth; ++i) {
      AddChild(std::make_unique<Branch>("layers." + std::to_string(i), 10 * i + 1, &biased));
    }
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override {
    at::Tensor h = x;
    for (const auto& child : children()) h = context.Call(*child, h);
    return h;
  }

  bool biased = true;
};

at::Tensor LossOf(Branches& net, models::ForwardContext& context, int rank, int64_t step) {
  net.biased = rank == 0;
  return context.Call(net, Numbers({5, kWidth}, 100 * step + rank)).square().mean();
}

// Rank 1 never uses a bias, so its groups lack a gradient. They are reduced all the same at the
// place where rank 0 reduces them: otherwise rank 0 waits for its third reduction while rank 1
// waits for a unit.
void Train(bool recompute, bool reshard_after_forward) {
  RunRanks(2, [&](comm::Communicator& ranks) {
    Branches net, plain;
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks,
                                     {.reshard_after_forward = reshard_after_forward});
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
      LossOf(net, *context, ranks.rank(), step).backward();
      const absl::Status status = (*strategy)->FinishBackward();
      ASSERT_TRUE(status.ok()) << status;
      std::vector<at::Tensor> sums(expected.size());
      for (int rank = 0; rank < 2; ++rank) {
        for (const auto& [name, tensor] : expected) at::Tensor(tensor).mutable_grad().reset();
        LossOf(plain, plainly, rank, step).backward();
        for (size_t i = 0; i < sums.size(); ++i) {
          const at::Tensor& gradient = expected[i].tensor.grad();
          if (!gradient.defined()) continue;
          sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
        }
      }
      const c10::NoGradGuard no_grad;
      for (size_t i = 0; i < sums.size(); ++i) {
        at::Tensor(expected[i].tensor).sub_(sums[i] / 2.0, 0.05);
      }
      for (const Piece& piece : (*strategy)->pieces()) {
        at::Tensor(piece.tensor).sub_(piece.tensor.grad(), 0.05);
        EXPECT_TRUE(
            SameBits(piece.tensor, expected[piece.parameter].tensor.detach().reshape({-1}).narrow(
                                       0, piece.begin, piece.tensor.numel())))
            << expected[piece.parameter].name << " in step " << step;
      }
      (*strategy)->FinishUpdate();
    }
  });
}

TEST(FsdpBranch, AParameterThatOneRankDoesNotUseHoldsNothingBack) {
  for (const bool reshard : {true, false}) Train(/*recompute=*/false, reshard);
}

TEST(FsdpBranch, NeitherIfTheUnitsAreRecomputed) {
  for (const bool reshard : {true, false}) Train(/*recompute=*/true, reshard);
}

}  // namespace
}  // namespace muster::parallel
