// A loss that uses several forwards of the model.
#include "ATen/TensorOperators.h"
#include "gtest/gtest.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/plain_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

class FourLayers : public Layers {
 public:
  FourLayers() : Layers(4) {}
};

at::Tensor ForwardOf(FourLayers& net, models::ForwardContext& context, int64_t seed) {
  return context.Call(net, Numbers({5, Layers::kWidth}, seed));
}

// A loss of two forwards, for example of two views of the same samples.
at::Tensor TwoForwards(FourLayers& net, models::ForwardContext& context, int rank, int64_t step) {
  const at::Tensor one = ForwardOf(net, context, 100 * step + rank);
  const at::Tensor other = ForwardOf(net, context, 100 * step + rank + 50);
  return (one - other).square().mean() + one.square().mean();
}

// A loss of two forwards. The second forward runs fewer units than the first.
at::Tensor ADeepAndAShallowForward(FourLayers& net, models::ForwardContext& context, int rank,
                                   int64_t step) {
  const at::Tensor one = ForwardOf(net, context, 100 * step + rank);
  net.StopAfter(2);
  const at::Tensor other = ForwardOf(net, context, 100 * step + rank + 50);
  net.StopAfter(4);
  return (one - other).square().mean();
}

TEST(FsdpRootTwice, OneBackwardThroughTwoForwards) {
  for (const bool recompute : {false, true}) {
    for (const bool reshard : {true, false}) {
      SCOPED_TRACE(testing::Message() << recompute << reshard);
      ExpectPlainTraining<FourLayers>(TwoForwards, recompute, {.reshard_after_forward = reshard});
      ExpectPlainTraining<FourLayers>(ADeepAndAShallowForward, recompute,
                                      {.reshard_after_forward = reshard});
    }
  }
}

}  // namespace
}  // namespace muster::parallel
