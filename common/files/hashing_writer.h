// Writes a new file from beginning to end, and hashes its bytes.
#ifndef MUSTER_COMMON_FILES_HASHING_WRITER_H_
#define MUSTER_COMMON_FILES_HASHING_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/files/hash.h"

namespace muster::files {

struct FileDigest {
  uint64_t size = 0;
  std::string hash;                 // as HashBytes
  std::vector<std::string> blocks;  // of each kHashedBlock bytes
};

// Threading: one thread. A writer that is destroyed before Finish succeeded removes its file.
class HashingWriter {
 public:
  // Makes a new file. An old file of that name is unlinked first: after a failed fsync its
  // descriptor must not be trusted again. `disk` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<HashingWriter>> Create(const std::string& path,
                                                               Disk& disk = Disk::Real());
  ~HashingWriter();

  absl::Status Append(const void* data, size_t size);

  // Calls fsync and close. Called once, last. After an error the file is gone.
  absl::StatusOr<FileDigest> Finish();

 private:
  HashingWriter(std::string path, int fd, Disk& disk);

  const std::string path_;
  int fd_;  // -1 once closed
  Disk& disk_;
  Hasher hasher_;
  BlockHasher blocks_;
  uint64_t size_ = 0;
  bool finished_ = false;
};

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_HASHING_WRITER_H_
