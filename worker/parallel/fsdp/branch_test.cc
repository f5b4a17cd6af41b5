// A unit with code that runs on some ranks only.
#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "gtest/gtest.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/plain_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr int kDepth = 7;
constexpr int64_t kWidth = Layers::kWidth;

// A unit that uses its bias only if `biased` is true.
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
    for (size_t i = 0; i < children().size(); ++i) {
      if (static_cast<int>(i) != skipped) h = context.Call(*children()[i], h);
    }
    return h;
  }

  bool biased = true;
  int skipped = -1;  // the number of a layer that is not called
};

at::Tensor LossOf(Branches& net, models::ForwardContext& context, int rank, int64_t step) {
  net.biased = rank == 0;
  return context.Call(net, Numbers({5, kWidth}, 100 * step + rank)).square().mean();
}

// Rank 1 never uses a bias, so its groups lack a gradient. Both ranks must reduce these groups at
// the same place. Otherwise rank 0 would wait for its third reduction while rank 1 waits for a
// unit.
void Train(bool recompute, bool reshard_after_forward) {
  ExpectPlainTraining<Branches>(LossOf, recompute,
                                {.reshard_after_forward = reshard_after_forward});
}

TEST(FsdpBranch, AParameterThatOneRankDoesNotUseHoldsNothingBack) {
  for (const bool reshard : {true, false}) Train(/*recompute=*/false, reshard);
}

TEST(FsdpBranch, NeitherIfTheUnitsAreRecomputed) {
  for (const bool reshard : {true, false}) Train(/*recompute=*/true, reshard);
}

TEST(FsdpBranch, AUnitThatNoRankCallsInAStepIsUnusedInIt) {
  for (const int skipped : {0, 3, kDepth - 1}) {
    for (const bool recompute : {false, true}) {
      const auto loss = [=](Branches& net, models::ForwardContext& context, int rank,
                            int64_t step) {
        net.skipped = step == 1 ? skipped : -1;
        return LossOf(net, context, rank, step);
      };
      ExpectPlainTraining<Branches>(loss, recompute, {});
    }
  }
}

}  // namespace
}  // namespace muster::parallel
