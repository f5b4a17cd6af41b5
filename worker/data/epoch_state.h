// The state of splitmix64 from which the order of an epoch is drawn (docs/sampler.md).
#ifndef MUSTER_WORKER_DATA_EPOCH_STATE_H_
#define MUSTER_WORKER_DATA_EPOCH_STATE_H_

#include <cstdint>
#include <optional>

#include "common/random/splitmix.h"

namespace muster::data {

// `rank`: given if the order is that of a rank's own file.
constexpr uint64_t EpochState(uint64_t seed, int64_t epoch, std::optional<int64_t> rank) {
  const uint64_t state =
      random::Mix(random::Mix(seed + random::kGamma) + static_cast<uint64_t>(epoch));
  return rank.has_value() ? random::Mix(state + static_cast<uint64_t>(*rank) + 1) : state;
}

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_EPOCH_STATE_H_
