#include "worker/parallel/test_net.h"

#include <algorithm>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/matmul.h"

namespace muster::parallel {
namespace {

enum Number { kFirst, kBias, kShared, kUnused, kOnlyFirst, kLast, kEmpty, kWide, kFrozen, kTable };

class Block : public models::Unit {
 public:
  Block(const std::string& name, const std::vector<models::Parameter>& all,
        const std::vector<Number>& own)
      : Unit(name) {
    for (const Number number : own) {
      // AddParameter makes its tensor trainable, but some of these parameters are frozen.
      ReplaceParameter(AddParameter(all[number].name, at::empty({0})), all[number].tensor);
    }
  }
};

class First : public Block {
 public:
  explicit First(const std::vector<models::Parameter>& all)
      : Block("blocks.0", all, {kFirst, kBias}) {}
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override {
    return (x.matmul(parameter(0)) + parameter(1)).tanh();
  }
};

class Shared : public Block {
 public:
  explicit Shared(const std::vector<models::Parameter>& all)
      : Block("blocks.1", all, {kShared, kFrozen}) {}
  at::Tensor Forward(const at::Tensor& h, models::ForwardContext&) override {
    return h.matmul(parameter(0)).tanh().matmul(parameter(0)) * parameter(1);
  }
};

// The root's own parameters.
constexpr Number kRoot[] = {kUnused, kOnlyFirst, kLast, kEmpty, kWide, kTable};

}  // namespace

TestNet::TestNet() : Unit("") {
  const std::vector<models::Parameter> all = MakeParameters();
  AddChild(std::make_unique<First>(all));
  AddChild(std::make_unique<Shared>(all));
  for (const Number number : kRoot) {
    ReplaceParameter(AddParameter(all[number].name, at::empty({0})), all[number].tensor);
  }
  for (const auto& [name, tensor] : MakeBuffers()) AddBuffer(name, tensor);
}

at::Tensor TestNet::Forward(const at::Tensor& x, models::ForwardContext& context) {
  const auto own = [&](Number number) {
    return parameter(std::find(std::begin(kRoot), std::end(kRoot), number) - std::begin(kRoot));
  };
  at::Tensor h = context.Call(*children()[1], context.Call(*children()[0], x));
  if (micro_batch_ == 0) h = h * own(kOnlyFirst);
  h = h.matmul(own(kLast));
  const at::Tensor loss = h.square().mean() + own(kEmpty).sum() +
                          h.to(at::kDouble).matmul(own(kWide)).sin().sum().to(at::kFloat);
  return use_ ? loss + own(kUnused).sum() : loss;
}

at::Tensor TestNet::LossOf(models::ForwardContext& context, int rank, int64_t step,
                           int micro_batch) {
  micro_batch_ = micro_batch;
  return context.Call(*this, Numbers({4, 7}, 1000 * step + 100 * micro_batch + rank));
}

std::vector<models::Parameter> TestNet::InOrder() const {
  std::vector<models::Parameter> ordered(kTable + 1);
  for (const auto& parameter : Parameters()) ordered[OrderOf(parameter.name)] = parameter;
  return ordered;
}

size_t TestNet::OrderOf(const std::string& name) {
  static const std::vector<models::Parameter> all = MakeParameters();
  return std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == name; }) -
         all.begin();
}

}  // namespace muster::parallel
