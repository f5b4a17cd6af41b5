#include "worker/models/init.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "common/activity/activity.h"
#include "worker/models/deferred_values.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

at::Tensor NowOrLater(const std::vector<int64_t>& shape, DeferredValues::Maker maker) {
  DeferredValues* const deferred = DeferredValues::Current();
  const at::Tensor values = deferred == nullptr ? maker() : deferred->Add(shape, std::move(maker));
  activity::Moved();
  return values;
}

}  // namespace

at::Tensor NormalInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                      double deviation) {
  return NowOrLater(shape, [=] {
    return at::empty(shape, at::kFloat)
        .normal_(0, deviation, MakeGenerator(SeedForName(seed, name)));
  });
}

at::Tensor UniformInit(uint64_t seed, const std::string& name, const std::vector<int64_t>& shape,
                       double bound) {
  return NowOrLater(shape, [=] {
    return at::empty(shape, at::kFloat)
        .uniform_(-bound, bound, MakeGenerator(SeedForName(seed, name)));
  });
}

at::Tensor ConstantInit(const std::vector<int64_t>& shape, double value) {
  return NowOrLater(shape, [=] { return at::full(shape, value, at::kFloat); });
}

}  // namespace muster::models
