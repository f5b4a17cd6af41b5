// splitmix64 (Steele, Lea, Flood 2014): random numbers from a 64-bit state, which any language can
// reproduce. Unsigned arithmetic, wrapping.
#ifndef MUSTER_COMMON_RANDOM_SPLITMIX_H_
#define MUSTER_COMMON_RANDOM_SPLITMIX_H_

#include <cstdint>

namespace muster::random {

inline constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

// The output function; also makes independent states of related numbers.
constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Threading: one thread.
class Splitmix {
 public:
  explicit constexpr Splitmix(uint64_t state) : state_(state) {}

  constexpr uint64_t Next() { return Mix(state_ += kGamma); }

  // A number in [0, bound), by the high half of a 128-bit product; bound is at least 1.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  // A number in [low, high): one of 2^53 places.
  constexpr double Uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(Next() >> 11) * 0x1p-53);
  }

 private:
  uint64_t state_;
};

}  // namespace muster::random

#endif  // MUSTER_COMMON_RANDOM_SPLITMIX_H_
