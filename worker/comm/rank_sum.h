// The sum of every reduction on the CPU: contributions are added in rank order and divided once.
#ifndef MUSTER_WORKER_COMM_RANK_SUM_H_
#define MUSTER_WORKER_COMM_RANK_SUM_H_

#include <cstdint>
#include <vector>

namespace muster::comm {

// destination[i] = (((sources[0][i] + sources[1][i]) + sources[2][i]) + ...) / divide_by, in T.
// There must be at least one source. destination may be one of the sources, but must not overlap a
// source otherwise. T: float, double, int64_t (which ignores divide_by).
template <typename T>
void RankOrderedSum(const std::vector<const T*>& sources, T* destination, int64_t elements,
                    double divide_by);

// The same sum for bfloat16 numbers, given as their bits. Each number is converted to float
// (exactly), then added and divided in float. destination must not overlap a source.
void RankOrderedSumOfBfloat16(const std::vector<const uint16_t*>& sources, float* destination,
                              int64_t elements, double divide_by);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_RANK_SUM_H_
