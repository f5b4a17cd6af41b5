// A plug-in for measurements: equal square layers, with a step hook of either kind or without one.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
#include "muster/plugin.h"

namespace muster::plugin {
namespace {

class Layer : public Unit {
 public:
  Layer(const std::string& name, int64_t in, int64_t out, Values& values) : Unit(name) {
    AddParameter(name + ".weight", values.Uniform(name + ".weight", {out, in}, 0.03));
    AddParameter(name + ".bias", values.Constant({out}, 0));
  }
  at::Tensor Forward(const at::Tensor& x, Context&) override {
    return at::linear(x, parameter(0), parameter(1));
  }
  void Train(bool trained) {
    for (const size_t index : {0, 1}) at::Tensor(parameter(index)).requires_grad_(trained);
  }
  void Scale(double factor) {
    const at::NoGradGuard no_grad;
    at::Tensor(parameter(1)).mul_(factor);
  }
};

class Layers : public Unit {
 public:
  Layers(int64_t width, int64_t layers, int64_t classes, Values& values) : Unit("") {
    for (int64_t i = 0; i <= layers; ++i) {
      const std::string name = "layers." + std::to_string(i);
      const int64_t out = i == layers ? classes : width;
      layers_.push_back(&AddChild(std::make_unique<Layer>(name, width, out, values)));
    }
  }
  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    at::Tensor y = x;
    for (Layer* layer : layers_) {
      y = context.Call(*layer, y);
      if (layer != layers_.back()) y = at::relu(y);
    }
    return y;
  }
  Layer& first() { return *layers_.front(); }

 private:
  std::vector<Layer*> layers_;
};

class Plain : public Model {
 public:
  Plain(int64_t width, int64_t classes, std::unique_ptr<Layers> root)
      : Model(std::move(root)), width_(width), classes_(classes) {}
  Input input() const override { return Input::Rows({width_}, classes_); }

 protected:
  Layer& first() { return static_cast<Layers&>(root()).first(); }

 private:
  const int64_t width_;
  const int64_t classes_;
};

// A hook that sets flags which are set already.
class WithFlagHook : public Plain, public FlagHook {
 public:
  using Plain::Plain;
  void BeforeStep(int64_t) override { first().Train(true); }
};

// A hook that writes values without changing them.
class WithValueHook : public Plain, public StepHook {
 public:
  using Plain::Plain;
  void BeforeStep(int64_t) override { first().Scale(1); }
};

std::unique_ptr<Model> Make(Options& options, Values& values) {
  const int64_t width = options.Size("width");
  const int64_t classes = options.Size("classes");
  const std::string hook = options.Text("hook");
  auto root = std::make_unique<Layers>(width, options.Size("layers"), classes, values);
  if (hook == "flags") return std::make_unique<WithFlagHook>(width, classes, std::move(root));
  if (hook == "values") return std::make_unique<WithValueHook>(width, classes, std::move(root));
  if (hook != "none") throw std::invalid_argument("hook: expected none, flags or values");
  return std::make_unique<Plain>(width, classes, std::move(root));
}

}  // namespace
}  // namespace muster::plugin

MUSTER_PLUGIN({"layers", muster::plugin::Make})
