// Unpacks a gzip file in memory (RFC 1952). If it has several members, their contents follow one
// another, as with gzip itself.
#ifndef MUSTER_WORKER_DATA_GZIP_H_
#define MUSTER_WORKER_DATA_GZIP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::data {

// Threading: one thread.
class Gunzip {
 public:
  // The packed bytes must outlive the object; `path` is for errors only.
  Gunzip(const uint8_t* data, size_t size, std::string path);
  ~Gunzip();

  // Unpacks up to `count` bytes; fewer only at the end. DATA_LOSS: not gzip, damaged (its checksum
  // too), or cut off.
  absl::StatusOr<size_t> Read(uint8_t* out, size_t count);

  // The largest unpacked size of this many packed bytes (deflate compresses at most 1032 to 1).
  static uint64_t MostUnpacked(size_t packed) { return uint64_t{1032} * packed; }

 private:
  struct Stream;

  absl::Status Broken(const std::string& what) const;

  const std::string path_;
  const std::unique_ptr<Stream> stream_;
  const uint8_t* rest_;  // not given to zlib yet
  size_t rest_size_;
  bool done_ = false;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_GZIP_H_
