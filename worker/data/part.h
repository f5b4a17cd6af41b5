// The part of a common task that one of several ranks does.
#ifndef MUSTER_WORKER_DATA_PART_H_
#define MUSTER_WORKER_DATA_PART_H_

#include <algorithm>
#include <cstdint>

namespace muster::data {

// Part `index` of `count` consecutive parts; their sizes differ by at most one element.
struct Part {
  int64_t index = 0;  // in [0, count)
  int64_t count = 1;

  // The beginning of the part in a whole of `total` elements. The part ends where the next part
  // begins.
  int64_t Begin(int64_t total) const { return BeginOf(index, total); }
  int64_t End(int64_t total) const { return BeginOf(index + 1, total); }

 private:
  int64_t BeginOf(int64_t part, int64_t total) const {
    return total / count * part + std::min(part, total % count);
  }
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PART_H_
