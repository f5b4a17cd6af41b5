#include "worker/data/idx.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMostDimensions = 4;

}  // namespace

absl::StatusOr<size_t> IdxHeaderSize(const uint8_t* magic, const std::string& path) {
  if (magic[0] != 0 || magic[1] != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: not an IDX file: expected two zero bytes at its beginning, found 0x%02x%02x", path,
        magic[0], magic[1]));
  }
  if (magic[2] != kUnsignedByte) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: IDX: expected elements of type 0x08 (unsigned bytes), found type 0x%02x", path,
        magic[2]));
  }
  if (magic[3] < 1 || magic[3] > kMostDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": IDX: expected 1 to ", kMostDimensions,
                                                   " dimensions, found ", magic[3]));
  }
  return kIdxMagic + 4 * static_cast<size_t>(magic[3]);
}

absl::StatusOr<IdxHeader> ParseIdxHeader(const uint8_t* header, size_t size,
                                         const std::string& path) {
  IdxHeader parsed;
  parsed.data_offset = static_cast<int64_t>(size);
  parsed.data_bytes = 1;
  bool overflow = false;
  for (size_t at = kIdxMagic; at + 4 <= size; at += 4) {
    const int64_t dimension = int64_t{header[at]} << 24 | int64_t{header[at + 1]} << 16 |
                              int64_t{header[at + 2]} << 8 | int64_t{header[at + 3]};
    parsed.shape.push_back(dimension);
    overflow |= __builtin_mul_overflow(parsed.data_bytes, dimension, &parsed.data_bytes);
  }
  if (overflow) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": IDX: the shape overflows"));
  }
  return parsed;
}

}  // namespace muster::data
