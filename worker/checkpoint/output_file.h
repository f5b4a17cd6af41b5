// A file that several ranks write at the same time.
#ifndef MUSTER_WORKER_CHECKPOINT_OUTPUT_FILE_H_
#define MUSTER_WORKER_CHECKPOINT_OUTPUT_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"

namespace muster::checkpoint {

// A file that is open for writing. Movable. Threading: one thread.
class OutputFile {
 public:
  // Creates a file of this size, with the permissions `mode` less those of the umask. The space is
  // allocated at once, so that a full disk is found here.
  static absl::StatusOr<OutputFile> Create(const std::string& path, uint64_t size,
                                           files::Disk& disk, mode_t mode = 0644);
  // Opens a file that another process has created. NOT_FOUND: this process does not see the file.
  // INTERNAL: the file does not have this size.
  static absl::StatusOr<OutputFile> Open(const std::string& path, uint64_t size, files::Disk& disk);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  absl::Status WriteAt(uint64_t offset, const void* data, size_t bytes);
  absl::Status Sync();

 private:
  OutputFile(std::string path, int fd, files::Disk& disk)
      : path_(std::move(path)), fd_(fd), disk_(&disk) {}

  std::string path_;
  int fd_;  // -1: this object was moved from
  files::Disk* disk_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_OUTPUT_FILE_H_
