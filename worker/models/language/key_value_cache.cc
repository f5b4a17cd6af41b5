#include "worker/models/language/key_value_cache.h"

#include <algorithm>
#include <string>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::models {

KeyValueCache::KeyValueCache(absl::Span<const int64_t> lengths, int64_t room, c10::Device device)
    : rows_(static_cast<int64_t>(lengths.size())),
      room_(room),
      longest_(*std::max_element(lengths.begin(), lengths.end())),
      lengths_(device::On(device, device::PinnedFor(device, device::HostTensor(lengths)))
                   .view({rows_, 1})),
      positions_(at::arange(longest_, lengths_.options()).expand({rows_, longest_})) {}

void KeyValueCache::Advance() {
  if (longest_ == room_) {
    throw ModelError("the cache of keys and values has room for " + std::to_string(room_) +
                     " positions, and the next token needs one more");
  }
  positions_ = first_ ? lengths_ : positions_.add(1);
  first_ = false;
  ++longest_;
  visible_ = at::arange(longest_, positions_.options()).le(positions_);
}

at::Tensor KeyValueCache::Attend(const Unit& layer, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, Window window) {
  Layer& kept = layers_[&layer];
  if (first_) {
    const auto keep = [&](const at::Tensor& x) {
      const at::Tensor all =
          at::zeros({rows_, x.size(1), room_, x.size(3)}, x.options().dtype(at::kFloat));
      all.narrow(2, 0, longest_).copy_(x);
      return all;
    };
    kept = {keep(k), keep(v)};
    // The fillers come after the tokens of a row, so causal attention does not see them.
    return CausalAttention(q, k, v, window);
  }
  const auto add = [&](const at::Tensor& all, const at::Tensor& x) {
    all.scatter_(2, positions_.view({rows_, 1, 1, 1}).expand(x.sizes()), x.to(all.scalar_type()));
    return all.narrow(2, 0, longest_);
  };
  at::Tensor visible = visible_;
  if (window.has_value() && longest_ > *window) {
    visible =
        visible.logical_and(at::arange(longest_, positions_.options()).gt(positions_.sub(*window)));
  }
  return OneTokenAttention(q, add(kept.keys, k), add(kept.values, v), visible);
}

at::Tensor KeyValueCache::OfLastTokens(const at::Tensor& x) const {
  if (!first_) return x;
  return x.gather(1, lengths_.sub(1).unsqueeze(2).expand({rows_, 1, x.size(2)}));
}

}  // namespace muster::models
