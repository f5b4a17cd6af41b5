// XXH3, 128 bits, as 32 lower-case hexadecimal digits (the canonical, big-endian form that
// `xxhsum -H2` prints). Detects accidental damage, not deliberate changes.
#ifndef MUSTER_COMMON_FILES_HASH_H_
#define MUSTER_COMMON_FILES_HASH_H_

#include <cstddef>
#include <memory>
#include <string>

namespace muster::files {

// Threading: one thread.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Update(const void* data, size_t size);
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashBytes(const void* data, size_t size);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_HASH_H_
