// The cut of a flat buffer into one contiguous slice per rank.
//
// Cuts are at multiples of kSliceAlignment elements. Fused optimizer kernels give the same bits for
// a piece of a parameter as for the whole parameter only if the piece begins at such a multiple.
#ifndef MUSTER_WORKER_COMM_SLICES_H_
#define MUSTER_WORKER_COMM_SLICES_H_

#include <algorithm>
#include <cstdint>

namespace muster::comm {

inline constexpr int64_t kSliceAlignment = 16;

struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the slice of `rank` when `elements` are cut for `world_size` ranks. All slices have the
// same size, except the last slices, which may be shorter or empty.
inline Slice SliceOf(int64_t elements, int rank, int world_size) {
  const int64_t size = RoundUp((elements + world_size - 1) / world_size, kSliceAlignment);
  return {std::min(elements, rank * size), std::min(elements, (rank + 1) * size)};
}

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_SLICES_H_
