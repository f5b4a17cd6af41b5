// The order of an epoch for `order: shuffled`. docs/sampler.md specifies it so exactly that any
// language reproduces it.
#ifndef MUSTER_WORKER_DATA_PERMUTATION_H_
#define MUSTER_WORKER_DATA_PERMUTATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/random/splitmix.h"

namespace muster::data {

// The state of splitmix64 from which the order of an epoch is drawn (docs/sampler.md).
// `rank`: given if the order is that of a rank's own file.
constexpr uint64_t EpochState(uint64_t seed, int64_t epoch, std::optional<int64_t> rank) {
  const uint64_t state =
      random::Mix(random::Mix(seed + random::kGamma) + static_cast<uint64_t>(epoch));
  return rank.has_value() ? random::Mix(state + static_cast<uint64_t>(*rank) + 1) : state;
}

// A permutation of [0, n): Fisher-Yates from the end, with random numbers of splitmix64 of (seed,
// epoch), and also of the rank if it orders a rank's own file. Calls activity::Moved(), because it
// takes minutes for 10^9 numbers.
std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n,
                                 std::optional<int64_t> rank = std::nullopt);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PERMUTATION_H_
