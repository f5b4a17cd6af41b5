#include "coordinator/webhook/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::webhook {
namespace {

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

}  // namespace

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return files::ErrnoStatus(errno, "look at", path);
    return Wrong(path,
                 "expected a file with the secret, found none; make one: "
                 "(umask 077; openssl rand -hex 32 >FILE)");
  }
  if (!S_ISREG(found.st_mode)) return Wrong(path, "expected a regular file, found something else");
  if (found.st_uid != geteuid() && found.st_uid != 0) {
    return Wrong(path, absl::StrCat("expected a file of the user ", geteuid(),
                                    " or of root, found one of the user ", found.st_uid,
                                    ", who knows the secret; make another file"));
  }
  if ((found.st_mode & 0077) != 0) {
    return Wrong(path, absl::StrFormat("expected the mode 0600 or 0400, found %04o: others can "
                                       "read the secret; make a new secret and chmod 600",
                                       found.st_mode & 07777));
  }
  if (found.st_size > kLongestSecret) {
    return Wrong(path, absl::StrCat("expected a secret of at most ", kLongestSecret,
                                    " bytes, found ", found.st_size));
  }
  ASSIGN_OR_RETURN(std::string secret, files::ReadFile(path));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < kShortestSecret) {
    return Wrong(path,
                 absl::StrCat("expected a secret of at least ", kShortestSecret, " bytes, found ",
                              secret.size(), "; make one with: openssl rand -hex 32"));
  }
  return secret;
}

}  // namespace muster::webhook
