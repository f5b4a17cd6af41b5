#include "tests/fuzz/target.h"
#include "worker/data/idx.h"

using muster::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < muster::data::kIdxMagic) return 0;
  const auto needed = muster::data::IdxHeaderSize(data, "file");
  if (!needed.ok() || *needed > size) return 0;
  const auto header = muster::data::ParseIdxHeader(data, *needed, "file");
  if (!header.ok()) return 0;
  Require(header->shape.size() == (*needed - muster::data::kIdxMagic) / 4, "each size is read");
  int64_t bytes = 1;
  bool overflow = false;
  for (const int64_t dimension : header->shape) {
    Require(dimension >= 0, "a size is not negative");
    overflow |= __builtin_mul_overflow(bytes, dimension, &bytes);
  }
  Require(!overflow && bytes == header->data_bytes, "the shape has its bytes");
  return 0;
}
