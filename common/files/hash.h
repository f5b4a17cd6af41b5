// XXH3, 128 bits, as 32 lower-case hexadecimal digits (the canonical, big-endian form that
// `xxhsum -H2` prints). Detects accidental damage, not deliberate changes.
#ifndef MUSTER_COMMON_FILES_HASH_H_
#define MUSTER_COMMON_FILES_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::files {

// Threading: one thread.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Update(const void* data, size_t size);
  std::string Hex() const;
  // Drops the bytes so far.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashBytes(const void* data, size_t size);

// The size of the blocks in which a file is also hashed (the last block may be shorter). So a
// reader of a part can check its bytes.
inline constexpr uint64_t kHashedBlock = uint64_t{4} << 20;

// Hashes each block of the bytes that it is given, in order. Threading: one thread.
class BlockHasher {
 public:
  void Update(const void* data, size_t size);
  // The hashes of all blocks, also of the last block unless it is empty. Called once, last.
  std::vector<std::string> Finish();

 private:
  Hasher block_;
  uint64_t in_block_ = 0;
  std::vector<std::string> hashes_;
};

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_HASH_H_
