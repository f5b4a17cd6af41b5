#include "coordinator/metrics/thinning.h"

#include <algorithm>

namespace muster::metrics {
namespace {

// The age up to which all rows are kept.
uint64_t Whole(uint64_t kept) { return kept / 2; }
// The number of rows kept in each band.
uint64_t RowsOfBand(uint64_t kept) { return (kept - Whole(kept)) / kBands; }
uint64_t Stride(int band) { return uint64_t{1} << band; }
// The youngest age in a band. A band's width is its rows times its stride. Band kBands + 1 is
// beyond the oldest band.
uint64_t Begin(int band, uint64_t kept) {
  return Whole(kept) + RowsOfBand(kept) * (Stride(band) - 2);
}

}  // namespace

bool Keeps(uint64_t number, uint64_t newest, uint64_t kept) {
  const uint64_t age = newest - std::min(number, newest);
  if (age < Begin(1, kept)) return true;
  for (int band = 1; band <= kBands; ++band) {
    if (age < Begin(band + 1, kept)) return number % Stride(band) == 0;
  }
  return false;
}

std::vector<uint64_t> DroppedBy(uint64_t newest, uint64_t kept) {
  std::vector<uint64_t> dropped;
  for (int band = kBands + 1; band >= 1; --band) {
    const uint64_t age = Begin(band, kept);
    if (age >= newest) continue;
    const uint64_t number = newest - age;
    if (Keeps(number, newest - 1, kept) && !Keeps(number, newest, kept)) dropped.push_back(number);
  }
  return dropped;
}

}  // namespace muster::metrics
