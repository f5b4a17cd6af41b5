// Which of a job's measurements (of steps and passes; musterd's own metrics are in web/) are kept
// when it has more rows than the bound: all of the newest rows, half of the bound, and of the older
// rows every 2nd, then every 4th, 8th, ... So the whole course stays visible, more coarsely where
// it is older. docs/reference/metrics.md has the numbers. Pure.
//
// Rows are numbered from 1 (steps by themselves, validation passes in their order). Whether a row
// is kept depends only on its number, the newest number and the bound, so a restart, or a row that
// is written again, changes nothing. A row that was dropped is never needed later: no larger
// `newest` keeps it.
#ifndef MUSTER_COORDINATOR_METRICS_THINNING_H_
#define MUSTER_COORDINATOR_METRICS_THINNING_H_

#include <cstdint>
#include <vector>

namespace muster::metrics {

// The number of bands of older rows, with strides 2 to 2^kBands. With the default bound they cover
// more rows than the longest possible job has.
inline constexpr int kBands = 24;
inline constexpr uint64_t kMinKept = 2 * kBands;
inline constexpr uint64_t kDefaultKept = 20000;

// At most `kept` (at least kMinKept) of the numbers 1 to `newest` are kept.
bool Keeps(uint64_t number, uint64_t newest, uint64_t kept);

// The numbers that are kept with newest - 1 as the newest number, but not with `newest`: at most
// one for each band, oldest first.
std::vector<uint64_t> DroppedBy(uint64_t newest, uint64_t kept);

}  // namespace muster::metrics

#endif  // MUSTER_COORDINATOR_METRICS_THINNING_H_
