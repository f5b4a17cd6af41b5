#include "worker/parallel/gradients/negative_zeros.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace muster::parallel {

template <typename T>
void CopyWithoutNegativeZeros(const T* from, T* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] + T{0};
}

template <typename T>
bool AllNegativeZeros(const T* values, int64_t count) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  constexpr Bits kNegativeZero = std::bit_cast<Bits>(-T{0});
  return std::all_of(values, values + count,
                     [](T value) { return std::bit_cast<Bits>(value) == kNegativeZero; });
}

template void CopyWithoutNegativeZeros(const float*, float*, int64_t);
template void CopyWithoutNegativeZeros(const double*, double*, int64_t);
template bool AllNegativeZeros(const float*, int64_t);
template bool AllNegativeZeros(const double*, int64_t);

}  // namespace muster::parallel
