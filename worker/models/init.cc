#include "worker/models/init.h"

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "worker/models/seed.h"

namespace muster::models {

at::Tensor NormalInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                      double deviation) {
  return at::empty(shape, at::kFloat).normal_(0, deviation, MakeGenerator(SeedForName(seed, name)));
}

at::Tensor UniformInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                       double bound) {
  return at::empty(shape, at::kFloat)
      .uniform_(-bound, bound, MakeGenerator(SeedForName(seed, name)));
}

at::Tensor ConstantInit(const std::vector<int64_t>& shape, double value) {
  return at::full(shape, value, at::kFloat);
}

}  // namespace muster::models
