#include "worker/models/vocabulary.h"

#include "ATen/ops/embedding.h"
#include "ATen/ops/linear.h"
#include "worker/models/init.h"

namespace muster::models {
namespace {

bool IsTokens(const at::Tensor& x) { return x.scalar_type() == at::kLong; }

}  // namespace

Vocabulary::Vocabulary(const std::string& name, int64_t tokens, int64_t width, double deviation,
                       uint64_t seed)
    : Unit(name) {
  const std::string weight = name + ".weight";
  AddParameter(weight, NormalInit(seed, weight, {tokens, width}, deviation));
}

at::Tensor Vocabulary::Forward(const at::Tensor& x, ForwardContext&) {
  return IsTokens(x) ? at::embedding(parameter(0), x) : at::linear(x, parameter(0));
}

bool Vocabulary::BackwardReadsParameters(const Tensors& inputs) const {
  return !IsTokens(inputs[0]);
}

}  // namespace muster::models
