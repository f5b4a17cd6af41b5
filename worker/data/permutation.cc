#include "worker/data/permutation.h"

#include <numeric>
#include <utility>

#include "common/random/splitmix.h"

namespace muster::data {

std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n,
                                 std::optional<int64_t> rank) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  uint64_t state = random::Mix(random::Mix(seed + random::kGamma) + static_cast<uint64_t>(epoch));
  if (rank.has_value()) state = random::Mix(state + static_cast<uint64_t>(*rank) + 1);
  random::Splitmix numbers(state);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<int64_t>(numbers.Below(i + 1))]);
  }
  return order;
}

}  // namespace muster::data
