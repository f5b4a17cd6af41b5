// Finds NaN and infinities; written so that the compiler vectorises the scan.
#ifndef MUSTER_WORKER_DATA_NOT_FINITE_H_
#define MUSTER_WORKER_DATA_NOT_FINITE_H_

#include <cstddef>
#include <optional>

namespace muster::data {

// The index of the first number that is not finite, if any.
std::optional<size_t> FirstNotFinite(const float* numbers, size_t count);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NOT_FINITE_H_
