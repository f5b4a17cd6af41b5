#include "worker/data/permutation.h"

#include <numeric>
#include <utility>

namespace muster::data {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

// The output function of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<int64_t> Permutation(uint64_t seed, int64_t epoch, int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  uint64_t state = Mix(Mix(seed + kGamma) + static_cast<uint64_t>(epoch));
  for (int64_t i = n - 1; i > 0; --i) {
    state += kGamma;
    const auto wide = static_cast<unsigned __int128>(Mix(state)) * static_cast<uint64_t>(i + 1);
    std::swap(order[i], order[static_cast<int64_t>(wide >> 64)]);
  }
  return order;
}

}  // namespace muster::data
