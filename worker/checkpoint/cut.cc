#include "worker/checkpoint/cut.h"

#include <algorithm>
#include <numeric>

namespace muster::checkpoint {

std::vector<std::vector<Cut>> CutEvenly(const std::vector<int64_t>& elements, int64_t parts) {
  constexpr int64_t kGrain = 16;
  const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const int64_t grains = (total + kGrain - 1) / kGrain;
  // Where part r ends in the concatenation.
  const auto part_end = [&](int64_t r) {
    return std::min(total, grains * (r + 1) / parts * kGrain);
  };
  std::vector<std::vector<Cut>> cuts(parts);
  int64_t part = 0;
  int64_t offset = 0;  // of the current tensor in the concatenation
  for (size_t tensor = 0; tensor < elements.size(); ++tensor) {
    int64_t begin = 0;
    do {
      while (part + 1 < parts && offset + begin >= part_end(part)) ++part;
      const int64_t end = std::min(elements[tensor], part_end(part) - offset);
      cuts[part].push_back({tensor, begin, end});
      begin = end;
    } while (begin < elements[tensor]);
    offset += elements[tensor];
  }
  return cuts;
}

}  // namespace muster::checkpoint
