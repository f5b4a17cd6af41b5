#include "worker/data/keyed_permutation.h"

#include <cmath>

#include "common/random/splitmix.h"
#include "worker/data/permutation.h"

namespace muster::data {
namespace {

// The smallest even number whose square is at least n.
uint64_t ColumnsFor(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));  // may be off by one
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root < 2 ? 2 : root + root % 2;
}

// Number `index` of the splitmix64 that begins with the state `key`, in [0, bound).
uint64_t Below(uint64_t bound, uint64_t key, uint64_t index) {
  return random::Splitmix(key + random::kGamma * index).Below(bound);
}

// (a + b) % bound, where a and b are below `bound`.
uint64_t Shifted(uint64_t a, uint64_t b, uint64_t bound) {
  const uint64_t sum = a + b;
  return sum < bound ? sum : sum - bound;
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t seed, int64_t epoch, int64_t n,
                                   std::optional<int64_t> rank)
    : n_(static_cast<uint64_t>(n)),
      columns_(ColumnsFor(n_)),
      rows_((n_ + columns_ - 1) / columns_) {
  random::Splitmix numbers(EpochState(seed, epoch, rank));
  for (uint64_t& key : keys_) key = numbers.Next();
}

int64_t KeyedPermutation::At(int64_t place) const {
  auto cell = static_cast<uint64_t>(place);
  do {
    uint64_t column = cell % columns_;
    uint64_t row = cell / columns_;
    for (int round = 0; round < kRounds; round += 2) {
      column = Shifted(column, Below(columns_, keys_[round], row), columns_);
      row = Shifted(row, Below(rows_, keys_[round + 1], column), rows_);
    }
    cell = row * columns_ + column;
  } while (cell >= n_);
  return static_cast<int64_t>(cell);
}

}  // namespace muster::data
