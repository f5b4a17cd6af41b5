// A model of layers, for tests.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_LAYERS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_LAYERS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/linear.h"
#include "worker/models/unit.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {

class Layer : public models::Unit {
 public:
  Layer(const std::string& name, int64_t width, uint64_t seed) : Unit(name) {
    AddParameter(name + ".weight", Numbers({width, width}, seed));
    AddParameter(name + ".bias", Numbers({width}, seed + 100));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override {
    return at::linear(x, parameter(0), parameter(1)).tanh();
  }
};

// Runs the layers "layers.0", "layers.1" and so on, one after another; with `twice`, the second
// layer runs twice. Multiplies the result by the root's own parameter "scale".
class Layers : public models::Unit {
 public:
  static constexpr int64_t kWidth = 9;  // no size of a parameter is a multiple of 16

  explicit Layers(int depth, bool twice = false) : Unit(""), twice_(twice) {
    for (int i = 0; i < depth; ++i) {
      AddChild(std::make_unique<Layer>("layers." + std::to_string(i), kWidth, 10 * i + 1));
    }
    AddParameter("scale", Numbers({kWidth}, 7));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override {
    at::Tensor h = x;
    for (size_t i = 0; i < children().size() && i < most_; ++i) {
      h = context.Call(*children()[i], h);
      if (twice_ && i == 1) h = context.Call(*children()[1], h);
    }
    return h * parameter(0);
  }

  // Makes later forwards run only the first `layers` layers.
  void StopAfter(size_t layers) { most_ = layers; }

 private:
  const bool twice_;
  size_t most_ = SIZE_MAX;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_LAYERS_H_
