// A residual network (He et al. 2015, "Deep Residual Learning for Image Recognition") of basic
// blocks with BatchNorm, for small images. It has a 3x3 stem without pooling, stages that halve the
// image (except the first), global average pooling, and one linear layer. Names, layouts and
// initial values are those of torchvision's ResNet.
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/adaptive_avg_pool2d.h"
#include "ATen/ops/batch_norm.h"
#include "ATen/ops/conv2d.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "worker/models/built_in.h"
#include "worker/models/init.h"
#include "worker/models/unit.h"

namespace muster::models {
namespace {

struct ConvnetShape {
  // The channels, height and width of an image.
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // The channels and the number of blocks of each stage. Both have the same length, at least one.
  std::vector<int64_t> widths;
  std::vector<int64_t> blocks;
  int64_t classes = 0;
};

// torch.nn.BatchNorm2d's defaults.
constexpr double kBatchNormEpsilon = 1e-5;
constexpr double kBatchNormMomentum = 0.1;

// Returns the pixels of a side after a convolution of stride 2: 3x3 with padding 1, or 1x1 without
// padding.
int64_t HalfSide(int64_t side) { return (side + 1) / 2; }

// A unit of convolutions (without bias) and batch normalizations.
class ConvUnit : public Unit {
 protected:
  using Unit::Unit;

  struct Conv {
    size_t weight;
    int64_t stride;
    int64_t padding;
  };
  // torch.nn.BatchNorm2d, as indices of its parameters and buffers.
  struct Norm {
    std::string name;
    size_t weight, bias;
    size_t mean, variance, batches;
  };

  // Adds a kernel x kernel convolution, padded so that stride 1 keeps the image's size. Initial
  // values are those of torchvision: kaiming_normal_(mode="fan_out", nonlinearity="relu").
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
      // The variance of a single value would be 0 / 0.
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

// A 3x3 convolution with stride 1, without pooling, because the images are small.
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

// torchvision's BasicBlock. Members are in forward order, which is the order of registration.
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

// rows float32 [B, ...] of channels x height x width numbers -> logits float32 [B, classes].
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

class Convnet : public Model {
 public:
  Convnet(const ConvnetShape& shape, uint64_t seed)
      : Model("convnet", std::make_unique<Root>(shape, seed)), shape_(shape) {}

  InputSpec UnitsInput() const override {
    return {.kind = InputSpec::Kind::kRows,
            .row_elements = shape_.channels * shape_.height * shape_.width,
            .classes = shape_.classes};
  }

  double ForwardFlops() const override {
    double flops = 0;
    int64_t height = shape_.height;
    int64_t width = shape_.width;
    int64_t in = shape_.channels;
    const auto conv = [&](int64_t from, int64_t to, int64_t kernel) {
      flops += 2.0 * height * width * from * to * kernel * kernel;
    };
    conv(in, shape_.widths[0], 3);
    in = shape_.widths[0];
    for (size_t stage = 0; stage < shape_.widths.size(); ++stage) {
      const int64_t out = shape_.widths[stage];
      if (stage > 0) {
        height = HalfSide(height);
        width = HalfSide(width);
        conv(in, out, 1);
      }
      for (int64_t block = 0; block < shape_.blocks[stage]; ++block) {
        conv(in, out, 3);
        conv(out, out, 3);
        in = out;
      }
    }
    return flops + 2.0 * in * shape_.classes;
  }

 private:
  const ConvnetShape shape_;
};

}  // namespace

std::unique_ptr<Model> CreateConvnet(const v1::ConvnetSpec& spec, uint64_t seed) {
  const ConvnetShape shape = {.channels = spec.inputs(0),
                              .height = spec.inputs(1),
                              .width = spec.inputs(2),
                              .widths = {spec.widths().begin(), spec.widths().end()},
                              .blocks = {spec.blocks().begin(), spec.blocks().end()},
                              .classes = spec.classes()};
  return std::make_unique<Convnet>(shape, seed);
}

}  // namespace muster::models
