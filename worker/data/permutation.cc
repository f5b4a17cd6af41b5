#include "worker/data/permutation.h"

#include <numeric>
#include <utility>

#include "common/activity/activity.h"
#include "common/random/splitmix.h"

namespace muster::data {
namespace {

// Swaps between two calls of activity::Moved().
constexpr int64_t kBlock = int64_t{1} << 20;

}  // namespace

std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n,
                                 std::optional<int64_t> rank) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  random::Splitmix numbers(EpochState(seed, epoch, rank));
  for (int64_t i = n - 1; i > 0; --i) {
    if (i % kBlock == 0) activity::Moved();
    std::swap(order[i], order[static_cast<int64_t>(numbers.Below(i + 1))]);
  }
  return order;
}

}  // namespace muster::data
