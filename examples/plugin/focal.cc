// An example of a plug-in (docs/how-to/plugins.md): a classifier with a loss of its own, the focal
// loss (Lin et al. 2017). A step hook keeps the weights of each neuron within a ball (max-norm,
// Srivastava et al. 2014). Two models:
//   focal  {inputs, width, layers, classes, gamma, max_norm}: with this loss and this hook
//   plain  {inputs, width, layers, classes}: the same network, trained with the job's loss
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/linalg_vector_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/log_softmax.h"
#include "muster/plugin.h"

namespace {

using muster::plugin::Batch;
using muster::plugin::Context;
using muster::plugin::Input;
using muster::plugin::LossOutput;
using muster::plugin::Model;
using muster::plugin::ModelWithLoss;
using muster::plugin::Options;
using muster::plugin::StepHook;
using muster::plugin::Unit;
using muster::plugin::Values;

class Layer : public Unit {
 public:
  Layer(const std::string& name, int64_t in, int64_t out, bool gelu, Values& values)
      : Unit(name), gelu_(gelu) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    AddParameter(name + ".weight", values.Uniform(name + ".weight", {out, in}, bound));
    AddParameter(name + ".bias", values.Uniform(name + ".bias", {out}, bound));
  }

  at::Tensor Forward(const at::Tensor& x, Context&) override {
    const at::Tensor y = at::linear(x, parameter(0), parameter(1));
    return gelu_ ? at::gelu(y) : y;
  }

  // Scales rows of the weight that are longer than `max_norm` down to `max_norm`.
  void KeepWithin(double max_norm) {
    const at::NoGradGuard no_grad;
    at::Tensor weight = parameter(0);
    const at::Tensor norms =
        at::linalg_vector_norm(weight, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    weight.mul_((max_norm / norms).clamp_max(1));
  }

 private:
  const bool gelu_;
};

struct Shape {
  // Reads the options one by one. A job file with other options is refused.
  explicit Shape(Options& options)
      : inputs(options.Size("inputs")),
        width(options.Size("width")),
        layers(options.Size("layers", 2)),
        classes(options.Size("classes")) {}
  int64_t inputs, width, layers, classes;
};

class Root : public Unit {
 public:
  Root(const Shape& shape, Values& values) : Unit("") {
    int64_t in = shape.inputs;
    for (int64_t i = 0; i < shape.layers; ++i, in = shape.width) {
      const std::string name = "layers." + std::to_string(i);
      layers_.push_back(&AddChild(std::make_unique<Layer>(name, in, shape.width, true, values)));
    }
    layers_.push_back(&AddChild(std::make_unique<Layer>("head", in, shape.classes, false, values)));
  }

  at::Tensor Forward(const at::Tensor& rows, Context& context) override {
    at::Tensor x = rows;
    for (Layer* layer : layers_) x = context.Call(*layer, x);
    return x;
  }

  const std::vector<Layer*>& layers() const { return layers_; }

 private:
  std::vector<Layer*> layers_;
};

class Plain : public Model {
 public:
  Plain(const Shape& shape, Values& values)
      : Model(std::make_unique<Root>(shape, values)), shape_(shape) {}
  Input input() const override { return Input::Rows({shape_.inputs}, shape_.classes); }

 private:
  const Shape shape_;
};

class Focal : public ModelWithLoss, public StepHook {
 public:
  Focal(const Shape& shape, double gamma, double max_norm, Values& values)
      : ModelWithLoss(std::make_unique<Root>(shape, values)),
        shape_(shape),
        gamma_(gamma),
        max_norm_(max_norm) {}

  Input input() const override { return Input::Rows({shape_.inputs}, shape_.classes); }

  LossOutput Loss(const Batch& batch, Context& context) override {
    const at::Tensor logits = context.Call(root(), batch.inputs);
    const at::Tensor target = batch.targets.unsqueeze(1);
    // Computed in float32, even if the job's precision gives logits of 16 bits.
    const at::Tensor log_p = at::log_softmax(logits, 1, at::kFloat).gather(1, target).squeeze(1);
    LossOutput loss{.mean = -((1 - log_p.exp()).pow(gamma_) * log_p).mean(),
                    .terms = batch.targets.numel()};
    if (!context.training())
      loss.correct = logits.argmax(1).eq(batch.targets).sum().item<int64_t>();
    return loss;
  }

  void BeforeStep(int64_t) override {
    if (max_norm_ == 0) return;
    for (Layer* layer : static_cast<Root&>(root()).layers()) layer->KeepWithin(max_norm_);
  }

 private:
  const Shape shape_;
  const double gamma_;
  const double max_norm_;
};

std::unique_ptr<Model> MakePlain(Options& options, Values& values) {
  return std::make_unique<Plain>(Shape(options), values);
}

std::unique_ptr<Model> MakeFocal(Options& options, Values& values) {
  const Shape shape(options);
  return std::make_unique<Focal>(shape, options.Number("gamma", 2), options.Number("max_norm", 0),
                                 values);
}

}  // namespace

MUSTER_PLUGIN({"focal", MakeFocal}, {"plain", MakePlain})
