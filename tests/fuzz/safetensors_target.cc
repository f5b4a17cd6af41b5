#include "common/safetensors/safetensors.h"
#include "tests/fuzz/target.h"

using muster::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = muster::safetensors::ParseHeader(data, size, "file");
  if (!header.ok()) return 0;
  Require(header->data_offset <= size, "the data section lies in the file");
  uint64_t end = 0;
  for (const auto& entry : header->entries) {
    Require(entry.begin == end && entry.end >= end, "entries lie side by side");
    end = entry.end;
    uint64_t bytes = muster::safetensors::ElementSize(entry.dtype);
    for (const int64_t dimension : entry.shape) bytes *= static_cast<uint64_t>(dimension);
    Require(bytes == entry.bytes(), "an entry has the bytes of its shape");
  }
  Require(end == size - header->data_offset, "the entries are all of the data");
  return 0;
}
