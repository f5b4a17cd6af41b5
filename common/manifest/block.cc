#include "common/manifest/block.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/hash.h"

namespace muster::manifest {

absl::Status ReadAt(int fd, int64_t offset, char* to, int64_t bytes, const std::string& path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return files::ErrnoStatus(errno, "read", path);
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": expected bytes from ", offset, " on, found the end of the file"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const FileRecord& record, int64_t number, const char* data, int64_t bytes,
                        const std::string& path) {
  const std::string found = files::HashBytes(data, bytes);
  if (found == record.blocks[number]) return absl::OkStatus();
  const int64_t begin = number * static_cast<int64_t>(files::kHashedBlock);
  return absl::DataLossError(absl::StrCat(path, ": bytes ", begin, " to ", begin + bytes,
                                          ": expected the hash ", record.blocks[number], ", found ",
                                          found));
}

}  // namespace muster::manifest
