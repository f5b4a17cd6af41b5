#include "client/cli/temporary_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/rpc/address.h"

namespace muster::cli {
namespace {

constexpr char kPrefix[] = "muster-run-";
constexpr char kOwner[] = "owner";
// The lock of musterd, which ends a moment after a killed run.
constexpr char kDaemonLock[] = "lock";

// The file, locked; without a descriptor where it is not there, or another process has the lock.
process::Fd Lock(const std::string& path, int flags) {
  process::Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return process::Fd();
}

// Whether the directory is this user's own, and no link to elsewhere.
bool IsOwn(const std::string& directory) {
  struct stat info;
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

void RemoveLeftovers(const std::string& root) {
  std::error_code error;
  // Not a range-based loop, because that throws if the directory cannot be read to its end.
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (it->path().filename().string().rfind(kPrefix, 0) != 0 || !IsOwn(path)) continue;
    // Without the file `owner` the directory is just being created.
    const process::Fd owner = Lock(files::JoinPath(path, kOwner), 0);
    if (owner.get() < 0) continue;
    const std::string daemon = files::JoinPath(path, kDaemonLock);
    const process::Fd daemon_lock = Lock(daemon, 0);
    if (daemon_lock.get() < 0 && Exists(daemon)) continue;
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TemporaryState>> TemporaryState::Create(const std::string& wanted) {
  const std::string root =
      SocketFits(files::JoinPath(wanted, absl::StrCat(kPrefix, "XXXXXX"))) ? wanted : "/tmp";
  RemoveLeftovers(root);
  // A run that starts at the same time may find the owner before it is locked, and remove it: then
  // once more.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = files::JoinPath(root, absl::StrCat(kPrefix, "XXXXXX"));
    if (mkdtemp(path.data()) == nullptr) {
      return absl::InternalError(
          absl::StrCat("cannot make a directory in ", root, ": ", strerror(errno)));
    }
    const std::string owner_file = files::JoinPath(path, kOwner);
    process::Fd owner = Lock(owner_file, O_CREAT);
    if (owner.get() >= 0 && Exists(owner_file)) {
      return std::unique_ptr<TemporaryState>(new TemporaryState(std::move(path), std::move(owner)));
    }
  }
  return absl::InternalError(absl::StrCat("cannot lock a file in a directory of ", root));
}

TemporaryState::~TemporaryState() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace muster::cli
