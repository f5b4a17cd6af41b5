#include "worker/models/batch.h"

#include <algorithm>

#include "ATen/ops/zeros.h"

namespace muster::models {
namespace {

int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

}  // namespace

int64_t InputArray::elements() const { return Product(shape); }

int64_t InputSpec::TargetsOfSample() const {
  if (kind == Kind::kTokens) return context;
  if (kind == Kind::kRows || target_numbers > 0) return std::max<int64_t>(target_numbers, 1);
  if (!own_loss) return Product(target_shape);
  if (!counted.has_value()) return 1;
  const InputArray& array = arrays[counted->input];
  return counted->first == 0 ? array.elements()
                             : array.elements() / array.shape[0] * (array.shape[0] - 1);
}

at::Tensor CountedTargets(const InputSpec& spec, const std::vector<at::Tensor>& arrays) {
  if (!spec.counted.has_value()) return at::zeros({arrays[0].size(0)}, at::kLong);
  const at::Tensor& all = arrays[spec.counted->input];
  return spec.counted->first == 0 ? all : all.slice(1, spec.counted->first);
}

}  // namespace muster::models
