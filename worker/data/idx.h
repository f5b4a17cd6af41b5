// The header of an IDX file (the layout of MNIST): two zero bytes, the element type, the number of
// dimensions, the dimensions as big-endian 32-bit numbers. The data follow.
#ifndef MUSTER_WORKER_DATA_IDX_H_
#define MUSTER_WORKER_DATA_IDX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {

// The number of bytes at the start that every header has. They determine the length of the rest.
inline constexpr size_t kIdxMagic = 4;

struct IdxHeader {
  std::vector<int64_t> shape;
  int64_t data_offset = 0;
  int64_t data_bytes = 0;  // number of bytes that the shape takes up
};

// Returns the length of the header that begins with these kIdxMagic bytes. INVALID_ARGUMENT: not an
// IDX file, elements that are not unsigned bytes, or not 1 to 4 dimensions. `path`: for errors.
absl::StatusOr<size_t> IdxHeaderSize(const uint8_t* magic, const std::string& path);

// Parses the whole header. INVALID_ARGUMENT: a shape that overflows.
absl::StatusOr<IdxHeader> ParseIdxHeader(const uint8_t* header, size_t size,
                                         const std::string& path);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_IDX_H_
