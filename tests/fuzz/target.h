// A fuzz target reads arbitrary bytes, as a reader of files does. It may refuse the bytes. It must
// not crash, loop, read outside of the bytes, or accept something that its users could not handle.
// The fuzzer libFuzzer (fuzz.py) calls a target with new inputs, and replay.cc with the inputs of
// the corpus.
#ifndef MUSTER_TESTS_FUZZ_TARGET_H_
#define MUSTER_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::fuzz {

// Ends the process unless the reader's promise `what` holds.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_TARGET_H_
