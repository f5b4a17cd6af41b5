// Thinning of a job's measurements when it has more rows than the bound. The newest rows, half of
// the bound, are all kept. Of the older rows every 2nd is kept, then every 4th, 8th, and so on. So
// the whole course stays visible, with fewer rows for older times. docs/reference/metrics.md has
// the numbers. Pure.
//
// Rows are numbered from 1: steps by their step, validation passes in their order. Whether a row is
// kept depends only on its number, the newest number and the bound. So a restart, or a row that is
// written again, changes nothing. A dropped row is never needed later: no larger `newest` keeps it.
//
// musterd's own metrics are in web/.
#ifndef MUSTER_COORDINATOR_METRICS_THINNING_H_
#define MUSTER_COORDINATOR_METRICS_THINNING_H_

#include <cstdint>
#include <vector>

namespace muster::metrics {

// The number of bands of older rows, with strides 2 to 2^kBands. With the default bound, the bands
// cover more rows than the longest possible job has.
inline constexpr int kBands = 24;
inline constexpr uint64_t kMinKept = 2 * kBands;
inline constexpr uint64_t kDefaultKept = 20000;

// Returns whether row `number` is kept. At most `kept` (at least kMinKept) of the numbers 1 to
// `newest` are kept.
bool Keeps(uint64_t number, uint64_t newest, uint64_t kept);

// Returns the numbers that are kept with `newest - 1` as the newest number, but not with `newest`:
// at most one number for each band, oldest first.
std::vector<uint64_t> DroppedBy(uint64_t newest, uint64_t kept);

}  // namespace muster::metrics

#endif  // MUSTER_COORDINATOR_METRICS_THINNING_H_
