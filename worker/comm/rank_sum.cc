#include "worker/comm/rank_sum.h"

#include <algorithm>
#include <type_traits>

namespace muster::comm {
namespace {

// Long enough to hide the loop's overhead, short enough to stay in the first-level cache.
constexpr int64_t kChunk = 1024;

// Every index reads its operands before it writes, so equal pointers are fine for ivdep.
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

}  // namespace

template <typename T>
void RankOrderedSum(const std::vector<const T*>& sources, T* destination, int64_t elements,
                    double divide_by) {
  const bool divides = std::is_floating_point_v<T> && divide_by != 1.0;
  const T divisor = divides ? static_cast<T>(divide_by) : T{1};
  if (sources.size() == 1) {
    if (divides) {
      Divide(sources[0], destination, elements, divisor);
    } else if (sources[0] != destination) {
      std::copy_n(sources[0], elements, destination);
    }
    return;
  }
  T sum[kChunk];
  for (int64_t begin = 0; begin < elements; begin += kChunk) {
    const int64_t n = std::min(kChunk, elements - begin);
    // All but the last addition go to `sum`: the destination may be a source still to be read.
    const T* so_far = sources[0] + begin;
    for (size_t rank = 1; rank + 1 < sources.size(); ++rank) {
      AddPair(so_far, sources[rank] + begin, sum, n);
      so_far = sum;
    }
    const T* last = sources.back() + begin;
    if (divides) {
      AddPairAndDivide(so_far, last, destination + begin, n, divisor);
    } else {
      AddPair(so_far, last, destination + begin, n);
    }
  }
}

template void RankOrderedSum(const std::vector<const float*>&, float*, int64_t, double);
template void RankOrderedSum(const std::vector<const double*>&, double*, int64_t, double);
template void RankOrderedSum(const std::vector<const int64_t*>&, int64_t*, int64_t, double);

}  // namespace muster::comm
