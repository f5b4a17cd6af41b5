// A copy of the database while it is in use.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/statement.h"

namespace muster::store {

namespace {

absl::Status Copy(const std::string& database, const std::string& path) {
  // Only its owner may read it, from the start.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  close(fd);
  // A separate connection reads one state of the database; in write-ahead mode no other connection
  // waits for it.
  sqlite3* from = nullptr;
  sqlite3* to = nullptr;
  const auto close_both = absl::MakeCleanup([&] {
    sqlite3_close(from);
    sqlite3_close(to);
  });
  if (sqlite3_open_v2(database.c_str(), &from, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK) {
    return SqliteError(from, absl::StrCat("open ", database));
  }
  sqlite3_busy_timeout(from, 5000);
  if (sqlite3_open_v2(path.c_str(), &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    return SqliteError(to, absl::StrCat("open ", path));
  }
  sqlite3_backup* backup = sqlite3_backup_init(to, "main", from, "main");
  if (backup == nullptr) return SqliteError(to, absl::StrCat("copy to ", path));
  // In one step: otherwise a commit during the copy would make SQLite restart it from the
  // beginning.
  sqlite3_backup_step(backup, -1);
  if (sqlite3_backup_finish(backup) != SQLITE_OK) {
    return SqliteError(to, absl::StrCat("copy to ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> SqliteStore::Backup() {
  static std::atomic<int> made = 0;
  // Beside the database, which has the right file system and permissions. Open() removes the copy
  // of a killed musterd.
  const std::string path = absl::StrCat(path_, ".backup-", getpid(), "-", ++made);
  const absl::Status copied = Copy(path_, path);
  if (copied.ok()) return path;
  unlink(path.c_str());
  return copied;
}

}  // namespace muster::store
