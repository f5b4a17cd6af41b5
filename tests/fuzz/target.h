// A fuzz target reads bytes that may be anything, as a reader of files does. It may refuse them; it
// must not crash, loop, read outside of them, or accept something that its users could not handle.
// libFuzzer (fuzz.py) calls it with ever new inputs, and replay.cc with those of the corpus.
#ifndef MUSTER_TESTS_FUZZ_TARGET_H_
#define MUSTER_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::fuzz {

// Ends the process unless what the reader has promised holds.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_TARGET_H_
