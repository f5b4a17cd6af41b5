// A file mapped read-only.
#ifndef MUSTER_COMMON_FILES_MAPPED_FILE_H_
#define MUSTER_COMMON_FILES_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::files {

// Movable; unmaps when destroyed. The file must not shrink while it is mapped: the kernel answers a
// read behind the end with SIGBUS. Threading: const.
class MappedFile {
 public:
  // Errors as in disk.h; INVALID_ARGUMENT: not a regular file. The file may be empty.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Call before a read, because a read beyond the end would end the process. FAILED_PRECONDITION:
  // the mapped file has shrunk. A file that replaced the mapped one under its name has no effect.
  // Does not notice a file that shrinks during the read. Costs one stat.
  absl::Status CheckNotShrunk() const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size, uint64_t device, uint64_t inode);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

// Makes the process report a read beyond the end of a file that has shrunk, on stderr, before
// SIGBUS ends the process. For main.
void ExplainBusErrors();

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_MAPPED_FILE_H_
