// Scans for NaN, infinities, and tokens beyond a vocabulary. The compiler vectorises the scans.
#ifndef MUSTER_WORKER_DATA_SCANS_H_
#define MUSTER_WORKER_DATA_SCANS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace muster::data {

// The index of the first number that is not finite, if any.
std::optional<size_t> FirstNotFinite(const float* numbers, size_t count);

// The index of the first token that is not below `vocab_size`, if any.
std::optional<size_t> FirstBeyond(const uint16_t* tokens, size_t count, int64_t vocab_size);
std::optional<size_t> FirstBeyond(const uint32_t* tokens, size_t count, int64_t vocab_size);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SCANS_H_
