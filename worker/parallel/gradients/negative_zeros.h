// Loops over numbers of which -0.0 is told apart from 0.0. T is float or double.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_

#include <cstdint>

namespace muster::parallel {

// Copies the numbers, with 0.0 in place of -0.0. The ranges do not overlap.
template <typename T>
void CopyWithoutNegativeZeros(const T* from, T* to, int64_t count);

// Whether each of the numbers is -0.0. Stops at the first one that is not.
template <typename T>
bool AllNegativeZeros(const T* values, int64_t count);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_NEGATIVE_ZEROS_H_
