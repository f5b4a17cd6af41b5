#include "common/files/read_beginning.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files/disk.h"

namespace muster::files {

absl::StatusOr<std::string> ReadBeginning(const std::string& path, size_t most) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  std::string contents;
  absl::Status status;
  char buffer[1 << 16];
  while (contents.size() < most) {
    const ssize_t got = read(fd, buffer, std::min(sizeof(buffer), most - contents.size()));
    if (got > 0) {
      contents.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      if (got < 0) status = ErrnoStatus(errno, "read", path);
      break;
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return contents;
}

}  // namespace muster::files
