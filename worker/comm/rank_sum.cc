#include "worker/comm/rank_sum.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>

namespace muster::comm {
namespace {

// The elements added at a time: enough to hide the loop's overhead, few enough for the L1 cache.
constexpr int64_t kChunk = 1024;

// Equal pointers are allowed with ivdep, because every index reads its operands before it writes.
template <typename T>
void AddPair(const T* a, const T* b, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

template <typename T>
void AddPairAndDivide(const T* a, const T* b, T* out, int64_t n, T divisor) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) / divisor;
}

template <typename T>
void Divide(const T* a, T* out, int64_t n, T divisor) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] / divisor;
}

// Returns the numbers of one source as T. `buffer` holds numbers that must be converted.
template <typename T>
const T* Load(const T* source, int64_t, T*) {
  return source;
}

const float* Load(const uint16_t* source, int64_t n, float* buffer) {
  for (int64_t i = 0; i < n; ++i) {
    buffer[i] = std::bit_cast<float>(static_cast<uint32_t>(source[i]) << 16);
  }
  return buffer;
}

template <typename Source, typename T>
void Sum(const std::vector<const Source*>& sources, T* destination, int64_t elements,
         double divide_by) {
  const bool divides = std::is_floating_point_v<T> && divide_by != 1.0;
  const T divisor = divides ? static_cast<T>(divide_by) : T{1};
  T sum[kChunk], converted[kChunk];
  for (int64_t begin = 0; begin < elements; begin += kChunk) {
    const int64_t n = std::min(kChunk, elements - begin);
    T* const to = destination + begin;
    const T* so_far = Load(sources[0] + begin, n, sum);
    if (sources.size() == 1) {
      if (divides) {
        Divide(so_far, to, n, divisor);
      } else if (so_far != to) {
        std::copy_n(so_far, n, to);
      }
      continue;
    }
    // All additions except the last go to `sum`: the destination may be a source that is read
    // later.
    for (size_t rank = 1; rank + 1 < sources.size(); ++rank) {
      AddPair(so_far, Load(sources[rank] + begin, n, converted), sum, n);
      so_far = sum;
    }
    const T* last = Load(sources.back() + begin, n, converted);
    if (divides) {
      AddPairAndDivide(so_far, last, to, n, divisor);
    } else {
      AddPair(so_far, last, to, n);
    }
  }
}

}  // namespace

template <typename T>
void RankOrderedSum(const std::vector<const T*>& sources, T* destination, int64_t elements,
                    double divide_by) {
  Sum(sources, destination, elements, divide_by);
}

void RankOrderedSumOfBfloat16(const std::vector<const uint16_t*>& sources, float* destination,
                              int64_t elements, double divide_by) {
  Sum(sources, destination, elements, divide_by);
}

template void RankOrderedSum(const std::vector<const float*>&, float*, int64_t, double);
template void RankOrderedSum(const std::vector<const double*>&, double*, int64_t, double);
template void RankOrderedSum(const std::vector<const int64_t*>&, int64_t*, int64_t, double);

}  // namespace muster::comm
