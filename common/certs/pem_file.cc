#include "common/certs/pem_file.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"

namespace muster::certs {

absl::StatusOr<std::string> ReadPemFile(const std::string& path) {
  struct stat status = {};
  // Before it is opened: a FIFO would wait for a writer.
  if (stat(path.c_str(), &status) != 0) return files::ErrnoStatus(errno, "read", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (status.st_size > static_cast<off_t>(kMaxPemBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", status.st_size,
                                                   " bytes; certificates and keys have at most ",
                                                   kMaxPemBytes));
  }
  return files::ReadFile(path);
}

}  // namespace muster::certs
