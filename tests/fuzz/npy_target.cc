#include <cstring>
#include <memory>

#include "tests/fuzz/target.h"
#include "worker/data/npy.h"

using muster::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = muster::data::ParseNpyHeader(data, size, "file");
  if (!header.ok()) return 0;
  Require(header->data_offset <= size, "the data begins in the file");
  for (const int64_t dimension : header->shape) Require(dimension >= 0, "a size is not negative");
  return 0;
}
