// Loops over numbers that distinguish -0.0 from 0.0. T is float or double.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_

#include <cstdint>

namespace muster::parallel {

// Copies the numbers, with 0.0 in place of -0.0. The ranges must not overlap.
template <typename T>
void CopyWithoutNegativeZeros(const T* from, T* to, int64_t count);

// Returns whether every number is -0.0. Stops at the first number that is not.
template <typename T>
bool AllNegativeZeros(const T* values, int64_t count);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_
