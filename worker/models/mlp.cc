// A multi-layer perceptron: Linear and ReLU in turn, then a Linear to the classes. Layout and
// initial values of weights are those of torch.nn.Linear: [out, in], names layers.<i>.weight and
// .bias.
#include <cmath>
#include <string>
#include <vector>

#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
#include "worker/models/built_in.h"
#include "worker/models/init.h"

namespace muster::models {
namespace {

class Layer : public Unit {
 public:
  Layer(const std::string& name, int64_t in, int64_t out, bool relu, uint64_t seed)
      : Unit(name), relu_(relu) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    AddParameter(name + ".weight", UniformInit(seed, name + ".weight", {out, in}, bound));
    AddParameter(name + ".bias", UniformInit(seed, name + ".bias", {out}, bound));
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext&) override {
    const at::Tensor y = at::linear(x, parameter(0), parameter(1));
    return relu_ ? at::relu(y) : y;
  }

 private:
  const bool relu_;
};

class Root : public Unit {
 public:
  Root(const std::vector<int64_t>& widths, uint64_t seed) : Unit("") {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const bool last = i + 2 == widths.size();
      AddChild(std::make_unique<Layer>("layers." + std::to_string(i), widths[i], widths[i + 1],
                                       /*relu=*/!last, seed));
    }
  }

  at::Tensor Forward(const at::Tensor& rows, ForwardContext& context) override {
    at::Tensor x = rows.flatten(1);
    for (const auto& layer : children()) x = context.Call(*layer, x);
    return x;
  }
};

class Mlp : public Model {
 public:
  Mlp(const std::vector<int64_t>& widths, uint64_t seed)
      : Model("mlp", std::make_unique<Root>(widths, seed)),
        inputs_(widths.front()),
        classes_(widths.back()) {
    for (size_t i = 1; i < widths.size(); ++i) {
      flops_ += 2.0 * static_cast<double>(widths[i - 1]) * static_cast<double>(widths[i]);
    }
  }

  double ForwardFlops() const override { return flops_; }

  InputSpec UnitsInput() const override {
    return {.kind = InputSpec::Kind::kRows, .row_elements = inputs_, .classes = classes_};
  }

 private:
  const int64_t inputs_;
  const int64_t classes_;
  double flops_ = 0;
};

}  // namespace

std::unique_ptr<Model> CreateMlp(const v1::MlpSpec& spec, uint64_t seed) {
  std::vector<int64_t> widths = {spec.inputs()};
  widths.insert(widths.end(), spec.hidden().begin(), spec.hidden().end());
  widths.push_back(spec.classes());
  return std::make_unique<Mlp>(widths, seed);
}

}  // namespace muster::models
