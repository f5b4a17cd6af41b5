#include "worker/models/convnet_units.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/adaptive_avg_pool2d.h"
#include "ATen/ops/batch_norm.h"
#include "ATen/ops/conv2d.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "worker/models/init.h"
#include "worker/models/model.h"

namespace muster::models {
namespace {

// A unit of convolutions (without bias) and batch normalizations.
class ConvUnit : public Unit {
 protected:
  using Unit::Unit;

  struct Conv {
    size_t weight;
    int64_t stride;
    int64_t padding;
  };
  // torch.nn.BatchNorm2d: indices of its parameters and buffers.
  struct Norm {
    std::string name;
    size_t weight, bias;
    size_t mean, variance, batches;
  };

  // kernel x kernel, padded so that stride 1 keeps the image's size. Initial values as in
  // torchvision: kaiming_normal_(mode="fan_out", nonlinearity="relu").
  Conv AddConv(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
               uint64_t seed) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
    const std::string weight = name + ".weight";
    return {AddParameter(weight, NormalInit(seed, weight, {out, in, kernel, kernel}, deviation)),
            stride, kernel / 2};
  }

  Norm AddNorm(const std::string& name, int64_t channels) {
    return {.name = name,
            .weight = AddParameter(name + ".weight", ConstantInit({channels}, 1)),
            .bias = AddParameter(name + ".bias", ConstantInit({channels}, 0)),
            .mean = AddBuffer(name + ".running_mean", ConstantInit({channels}, 0)),
            .variance = AddBuffer(name + ".running_var", ConstantInit({channels}, 1)),
            .batches = AddBuffer(name + ".num_batches_tracked", at::zeros({}, at::kLong))};
  }

  at::Tensor Apply(const Conv& conv, const at::Tensor& x) const {
    return at::conv2d(x, parameter(conv.weight), {}, conv.stride, conv.padding);
  }

  at::Tensor Apply(const Norm& norm, const at::Tensor& x, const ForwardContext& context) const {
    if (context.training()) {
      // Its variance would be 0 / 0.
      if (x.numel() <= x.size(1)) {
        throw ModelError(absl::StrCat(
            "model convnet: ", norm.name,
            ": expected more than one value per channel in training, found ", Describe(x),
            "; raise batch.per_rank, or where it is the short end of an epoch (batch.last: "
            "uneven), "
            "change it so that no micro-batch of one sample is left"));
      }
      buffer(norm.batches).add_(1);
    }
    return at::batch_norm(x, parameter(norm.weight), parameter(norm.bias), buffer(norm.mean),
                          buffer(norm.variance), context.training(), kBatchNormMomentum,
                          kBatchNormEpsilon, /*cudnn_enabled=*/true);
  }
};

// 3x3 with stride 1 and no pooling: the images are small.
class Stem : public ConvUnit {
 public:
  Stem(int64_t in, int64_t out, uint64_t seed)
      : ConvUnit("stem"),
        conv1_(AddConv("conv1", in, out, 3, 1, seed)),
        bn1_(AddNorm("bn1", out)) {}

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    return at::relu(Apply(bn1_, Apply(conv1_, x), context));
  }

 private:
  const Conv conv1_;
  const Norm bn1_;
};

// torchvision's BasicBlock. Members in forward order, which is that of registration.
class Block : public ConvUnit {
 public:
  Block(const std::string& name, int64_t in, int64_t out, int64_t stride, uint64_t seed)
      : ConvUnit(name),
        conv1_(AddConv(name + ".conv1", in, out, 3, stride, seed)),
        bn1_(AddNorm(name + ".bn1", out)),
        conv2_(AddConv(name + ".conv2", out, out, 3, 1, seed)),
        bn2_(AddNorm(name + ".bn2", out)) {
    if (stride == 1 && in == out) return;
    const Conv conv = AddConv(name + ".downsample.0", in, out, 1, stride, seed);
    downsample_.emplace(conv, AddNorm(name + ".downsample.1", out));
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    at::Tensor y = at::relu(Apply(bn1_, Apply(conv1_, x), context));
    y = Apply(bn2_, Apply(conv2_, y), context);
    if (!downsample_.has_value()) return at::relu(y + x);
    return at::relu(y + Apply(downsample_->second, Apply(downsample_->first, x), context));
  }

 private:
  const Conv conv1_;
  const Norm bn1_;
  const Conv conv2_;
  const Norm bn2_;
  std::optional<std::pair<Conv, Norm>> downsample_;
};

class Head : public Unit {
 public:
  Head(int64_t in, int64_t classes, uint64_t seed) : Unit("fc") {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    AddParameter("fc.weight", UniformInit(seed, "fc.weight", {classes, in}, bound));
    AddParameter("fc.bias", UniformInit(seed, "fc.bias", {classes}, bound));
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext&) override {
    return at::linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), parameter(0), parameter(1));
  }
};

class Root : public Unit {
 public:
  Root(const ConvnetShape& shape, uint64_t seed) : Unit(""), shape_(shape) {
    AddChild(std::make_unique<Stem>(shape.channels, shape.widths[0], seed));
    int64_t in = shape.widths[0];
    for (size_t stage = 0; stage < shape.widths.size(); ++stage) {
      for (int64_t block = 0; block < shape.blocks[stage]; ++block) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
        const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        AddChild(std::make_unique<Block>(name, in, shape.widths[stage], stride, seed));
        in = shape.widths[stage];
      }
    }
    AddChild(std::make_unique<Head>(in, shape.classes, seed));
  }

  at::Tensor Forward(const at::Tensor& rows, ForwardContext& context) override {
    at::Tensor x = rows.reshape({rows.size(0), shape_.channels, shape_.height, shape_.width});
    for (const auto& unit : children()) x = context.Call(*unit, x);
    return x;
  }

 private:
  const ConvnetShape shape_;
};

}  // namespace

std::unique_ptr<Unit> MakeConvnetRoot(const ConvnetShape& shape, uint64_t seed) {
  return std::make_unique<Root>(shape, seed);
}

}  // namespace muster::models
