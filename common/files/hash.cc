#include "common/files/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/activity/activity.h"

namespace muster::files {
namespace {

std::string ToHex(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  static const char* const kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned char byte : canonical.digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

struct Hasher::State {
  State() : xxh(XXH3_createState()) { XXH3_128bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::Update(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  activity::ByBlocks(size, [&](size_t offset, size_t block) {
    XXH3_128bits_update(state_->xxh, bytes + offset, block);
    return true;
  });
}

std::string Hasher::Hex() const { return ToHex(XXH3_128bits_digest(state_->xxh)); }

void Hasher::Reset() { XXH3_128bits_reset(state_->xxh); }

void BlockHasher::Update(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const size_t part = std::min<uint64_t>(size, kHashedBlock - in_block_);
    block_.Update(bytes, part);
    bytes += part;
    size -= part;
    in_block_ += part;
    if (in_block_ < kHashedBlock) continue;
    hashes_.push_back(block_.Hex());
    block_.Reset();
    in_block_ = 0;
  }
}

std::vector<std::string> BlockHasher::Finish() {
  if (in_block_ > 0) hashes_.push_back(block_.Hex());
  return std::move(hashes_);
}

std::string HashBytes(const void* data, size_t size) {
  if (size <= activity::kBlockBytes) return ToHex(XXH3_128bits(data, size));
  Hasher hasher;
  hasher.Update(data, size);
  return hasher.Hex();
}

}  // namespace muster::files
