// The order of an epoch for `order: shuffled`. The exact specification is in
// docs/reference/sampler.md.
#ifndef MUSTER_WORKER_DATA_PERMUTATION_H_
#define MUSTER_WORKER_DATA_PERMUTATION_H_

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/activity/activity.h"
#include "common/random/splitmix.h"

namespace muster::data {

// The state of splitmix64 from which the order of an epoch is drawn (docs/reference/sampler.md).
// `rank`: given if the order is that of a rank's own file.
constexpr uint64_t EpochState(uint64_t seed, int64_t epoch, std::optional<int64_t> rank) {
  const uint64_t state =
      random::Mix(random::Mix(seed + random::kGamma) + static_cast<uint64_t>(epoch));
  return rank.has_value() ? random::Mix(state + static_cast<uint64_t>(*rank) + 1) : state;
}

// Returns a permutation of [0, n): Fisher-Yates from the end, with random numbers of splitmix64 of
// (seed, epoch), and also of the rank for the order of a rank's own file. Calls activity::Moved(),
// because 10^9 numbers take minutes.
inline std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n,
                                        std::optional<int64_t> rank = std::nullopt) {
  // The number of swaps between two calls of activity::Moved().
  constexpr int64_t kBlock = int64_t{1} << 20;
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

#endif  // MUSTER_WORKER_DATA_PERMUTATION_H_
