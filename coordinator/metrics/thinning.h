// Which of a job's metrics are kept when it has more than the bound: the newest half of the bound
// whole, and behind them every 2nd, then every 4th, 8th, ... so that the whole course stays
// visible, the more coarsely the older. docs/metrics.md says it with numbers. Pure.
//
// Rows are numbered from 1 (steps by themselves, validation passes in their order). What is kept
// depends on nothing but the number, the newest number and the bound, so a restart, or a row that
// is written again, changes nothing; and what was once dropped is never missed later: no larger
// `newest` would keep it.
#ifndef MUSTER_COORDINATOR_METRICS_THINNING_H_
#define MUSTER_COORDINATOR_METRICS_THINNING_H_

#include <cstdint>
#include <vector>

namespace muster::metrics {

// Bands behind the whole part: with strides 2 to 2^kBands. At the default bound they reach back
// beyond the longest job there can be.
inline constexpr int kBands = 24;
inline constexpr uint64_t kMinKept = 2 * kBands;
inline constexpr uint64_t kDefaultKept = 20000;

// At most `kept` (at least kMinKept) of the numbers 1 to `newest` are kept.
bool Keeps(uint64_t number, uint64_t newest, uint64_t kept);

// Those that were kept while newest - 1 was the newest one and are not any more: at most one for
// each band, oldest first.
std::vector<uint64_t> DroppedBy(uint64_t newest, uint64_t kept);

}  // namespace muster::metrics

#endif  // MUSTER_COORDINATOR_METRICS_THINNING_H_
