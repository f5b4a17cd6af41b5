#include "coordinator/store/database_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "coordinator/store/database.h"
#include "coordinator/store/migration.h"
#include "coordinator/store/statement.h"

namespace muster::store {
namespace {

constexpr char kRestore[] =
    "put a backup in its place (docs/internals/store.md, Backup and restore), or remove it or "
    "name another --state directory to begin a new store";

absl::Status MakeTables(const std::string& path) {
  // An incomplete file is thrown away, so nothing need be durable before its end.
  constexpr char kQuick[] = "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF";
  Database db;
  RETURN_IF_ERROR(db.Open(path));
  RETURN_IF_ERROR(Execute(db.get(), kQuick));
  RETURN_IF_ERROR(Execute(db.get(), absl::StrCat("PRAGMA application_id=", kApplicationId)));
  return Migrate(&db);
}

absl::Status MakeDurable(const std::string& path, files::Disk& disk) {
  // SQLite gives its files beside this one the same permissions.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return files::ErrnoStatus(errno, "create", path);
  absl::Status made = fchmod(fd, 0600) == 0
                          ? MakeTables(path)
                          : files::ErrnoStatus(errno, "set the permissions of", path);
  if (made.ok()) made = disk.Sync(fd, path);
  close(fd);
  return made;
}

}  // namespace

absl::StatusOr<bool> LooksLikeStore(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return files::ErrnoStatus(errno, "look at", path);
    if (lstat(path.c_str(), &found) == 0) {
      return absl::FailedPreconditionError(
          "is a symbolic link to a file that is not there; is its file system mounted?");
    }
    if (stat((path + "-wal").c_str(), &found) == 0 && found.st_size > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "is missing, but its log ", path, "-wal is there; put the database back, or ",
          "remove the log, too, to begin a new store"));
    }
    return false;
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(
        "is no regular file; remove it, or name another --state directory");
  }
  if (found.st_size > 0) return true;
  return absl::FailedPreconditionError(
      absl::StrCat("is empty (0 bytes), which no database of musterd is; ", kRestore));
}

absl::Status MakeDatabase(const std::string& path) {
  files::Disk& disk = files::Disk::Real();
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // of a musterd that was killed
  absl::Status made = MakeDurable(fresh, disk);
  if (made.ok()) made = files::RenameDurably(fresh, path, disk);
  if (!made.ok()) unlink(fresh.c_str());
  return made;
}

absl::Status CheckIsOwn(Database* db) {
  ASSIGN_OR_RETURN(const uint64_t application, db->Number("PRAGMA application_id"));
  // The tables that the store has had since its first version.
  ASSIGN_OR_RETURN(const uint64_t tables,
                   db->Number("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN "
                              "('jobs', 'ranks', 'checkpoints', 'commands', 'requests', 'nodes')"));
  if ((application == 0 || application == kApplicationId) && tables == 6) return absl::OkStatus();
  std::string found = "a SQLite database without musterd's tables";
  if (application != 0 && application != kApplicationId) {
    found = absl::StrFormat("another program's SQLite database (application_id 0x%08x)",
                            static_cast<uint32_t>(application));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("is ", found, "; it was not changed; ", kRestore));
}

}  // namespace muster::store
