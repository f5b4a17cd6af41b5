#include "coordinator/store/ballast.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::store {

bool Ballast::Restore() {
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool whole = posix_fallocate(fd, 0, kBytes) == 0 && ftruncate(fd, kBytes) == 0;
  // Half of it would only make the disk fuller.
  if (!whole) unlink(path_.c_str());
  close(fd);
  return whole;
}

bool Ballast::Release() { return unlink(path_.c_str()) == 0; }

}  // namespace muster::store
