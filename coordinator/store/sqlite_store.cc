#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/private_directory.h"
#include "common/status/status.h"
#include "coordinator/jobs/events.h"
#include "coordinator/store/database_file.h"
#include "coordinator/store/migration.h"
#include "coordinator/store/statement.h"
#include "coordinator/store/tables.h"

namespace muster::store {
namespace {

// Writes the changes of one list of a job. `key`: the column of the list's keys. A row of the table
// includes its key, or has the key as a value between the job's id and the rest.
template <typename Table, typename Key, typename Row>
absl::Status WriteList(Database* db, const std::string& id, const char* key,
                       const RowChanges<Key, Row>& changes) {
  for (const Key& removed : changes.removed) {
    RETURN_IF_ERROR(
        db->Run(absl::StrCat("DELETE FROM ", Table::kName, " WHERE job_id = ? AND ", key, " = ?"),
                id, removed));
  }
  for (const auto& [number, row] : changes.put) {
    if constexpr (std::tuple_size_v<typename Table::Row> == 3) {
      RETURN_IF_ERROR(db->Put<Table>(id, number, row));
    } else {
      RETURN_IF_ERROR(db->Put<Table>(id, row));
    }
  }
  return absl::OkStatus();
}

// Copies the database while it is in use.
absl::Status Copy(const std::string& database, const std::string& path) {
  // Only the owner may read the copy, from the start.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  close(fd);
  // A separate connection reads one state of the database. In write-ahead mode no other connection
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
  // The copy is one step: a commit between steps would make SQLite restart the copy.
  sqlite3_backup_step(backup, -1);
  if (sqlite3_backup_finish(backup) != SQLITE_OK) {
    return SqliteError(to, absl::StrCat("copy to ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& directory,
                                                               const StoreOptions& options) {
  // The files of musterd, and of the program that starts it (client/cli/local_coordinator.cc).
  const absl::Status made = files::MakePrivateDirectory(
      directory, {"muster.db*", "lock", "ballast", "owner", "address", "*.log", "local-agent.pid"});
  if (!made.ok()) return Annotate(made, "--state");
  std::unique_ptr<SqliteStore> store(new SqliteStore(directory, options));
  RETURN_IF_ERROR(store->Lock(directory));
  absl::Status opened = store->OpenFile();
  // A full disk has no space for the files that SQLite keeps beside this one. If SQLite cannot make
  // them, its error does not give the reason.
  const bool full = absl::IsResourceExhausted(opened) ||
                    (absl::IsUnavailable(opened) && store->reserve_.DiskIsFull());
  if (full && store->reserve_.Release()) {
    store->db_.Close();
    opened = store->OpenFile();
    if (!opened.ok()) {
      // The next start needs the ballast again.
      store->db_.Close();
      store->reserve_.Restore().IgnoreError();
    }
  }
  RETURN_IF_ERROR(Annotate(opened, store->path_));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (absl::StartsWith(entry.path().filename().string(), "muster.db.backup-")) {
      std::filesystem::remove(entry.path(), error);
    }
  }
  // Without the ballast a full disk would be noticed only when not even a deletion can be written.
  store->opened_short_of_room_ =
      absl::IsResourceExhausted(store->reserve_.Restore()) && !store->HasRoomWithin();
  return store;
}

SqliteStore::~SqliteStore() {
  db_.Close();
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status SqliteStore::Lock(const std::string& directory) {
  const std::string path = directory + "/lock";
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) {
    return absl::UnavailableError(absl::StrCat(path, " cannot be opened: ", strerror(errno)));
  }
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("state directory ", directory,
                   " is in use by another musterd; stop that one, or choose another directory"));
}

absl::Status SqliteStore::OpenFile() {
  ASSIGN_OR_RETURN(const bool there, LooksLikeStore(path_));
  if (!there) RETURN_IF_ERROR(MakeDatabase(path_));
  RETURN_IF_ERROR(db_.Open(path_));
  RETURN_IF_ERROR(CheckIsOwn(&db_));
  RETURN_IF_ERROR(CheckVersion(&db_));
  RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA synchronous=FULL"));
  return Migrate(&db_);
}

absl::Status SqliteStore::Commit(const Batch& batch) {
  RETURN_IF_ERROR(db_.Run("BEGIN IMMEDIATE"));
  absl::Status status = Write(batch);
  if (status.ok()) status = db_.Run("COMMIT");
  if (!status.ok()) {
    Execute(db_.get(), "ROLLBACK").IgnoreError();
    metrics_.ForgetAll();
  }
  return Annotate(status, path_);
}

absl::StatusOr<std::string> SqliteStore::Backup() {
  static std::atomic<int> made = 0;
  // The copy lies beside the database, on the right file system and with the right permissions.
  // Open() removes the copy of a killed musterd.
  const std::string path = absl::StrCat(path_, ".backup-", getpid(), "-", ++made);
  const absl::Status copied = Copy(path_, path);
  if (copied.ok()) return path;
  unlink(path.c_str());
  return copied;
}

bool SqliteStore::RestoreReserve() { return reserve_.Restore().ok() || HasRoomWithin(); }

bool SqliteStore::HasRoomWithin() {
  const auto pages = db_.Number("PRAGMA freelist_count");
  const auto page = db_.Number("PRAGMA page_size");
  return pages.ok() && page.ok() && *pages * *page >= uint64_t{DiskReserve::kBytes};
}

absl::Status SqliteStore::Remove(const Batch& batch) {
  for (const std::string& id : batch.removed_jobs) {
    RETURN_IF_ERROR(db_.Run("DELETE FROM jobs WHERE id = ?", id));
    for (const char* table :
         {"job_life", "job_progress", "ranks", "checkpoints", "failures", "commands",
          "trainability", "trainability_changes", "attempts", "setting_changes", "steps",
          "validations", "tests", "logs", "events"}) {
      RETURN_IF_ERROR(db_.Run(absl::StrCat("DELETE FROM ", table, " WHERE job_id = ?"), id));
    }
    metrics_.Forget(id);
  }
  for (const std::string& id : batch.removed_requests) {
    RETURN_IF_ERROR(db_.Run("DELETE FROM requests WHERE request_id = ?", id));
  }
  for (const uint64_t number : batch.removed_deliveries) {
    RETURN_IF_ERROR(db_.Run("DELETE FROM deliveries WHERE number = ?", number));
  }
  if (batch.last_number == 0) return absl::OkStatus();
  return db_.Run("REPLACE INTO counters VALUES ('last_number', ?)", batch.last_number);
}

absl::Status SqliteStore::WriteJob(const Batch::JobRow& row) {
  const std::string& id = row.job_id;
  if (row.identity.has_value()) RETURN_IF_ERROR(db_.Put<JobsTable>(*row.identity));
  if (row.life.has_value()) RETURN_IF_ERROR(db_.Put<JobLifeTable>(id, *row.life));
  if (row.progress.has_value()) RETURN_IF_ERROR(db_.Put<JobProgressTable>(id, *row.progress));
  RETURN_IF_ERROR(WriteList<RanksTable>(&db_, id, "rank", row.ranks));
  RETURN_IF_ERROR(WriteList<CheckpointsTable>(&db_, id, "path", row.checkpoints));
  RETURN_IF_ERROR(WriteList<AttemptsTable>(&db_, id, "attempt", row.attempts));
  RETURN_IF_ERROR(WriteList<SettingChangesTable>(&db_, id, "position", row.setting_changes));
  RETURN_IF_ERROR(WriteList<FailuresTable>(&db_, id, "position", row.failures));
  RETURN_IF_ERROR(WriteList<CommandsTable>(&db_, id, "number", row.commands));
  if (row.trainability.has_value()) {
    RETURN_IF_ERROR(db_.Put<TrainabilityTable>(id, *row.trainability));
  }
  return WriteList<TrainabilityChangesTable>(&db_, id, "version", row.trainability_changes);
}

absl::Status SqliteStore::Write(const Batch& batch) {
  RETURN_IF_ERROR(Remove(batch));
  for (const Batch::JobRow& row : batch.jobs) RETURN_IF_ERROR(WriteJob(row));
  for (const NodeRow& row : batch.nodes) RETURN_IF_ERROR(db_.Put<NodesTable>(row));
  for (const std::string& node : batch.removed_nodes) {
    RETURN_IF_ERROR(db_.Run("DELETE FROM nodes WHERE node = ?", node));
  }
  for (const NodeMarkRow& row : batch.node_marks) RETURN_IF_ERROR(db_.Put<NodeMarksTable>(row));
  for (const std::string& node : batch.removed_node_marks) {
    RETURN_IF_ERROR(db_.Run("DELETE FROM node_marks WHERE node = ?", node));
  }
  for (const RequestRow& row : batch.requests) RETURN_IF_ERROR(db_.Put<RequestsTable>(row));
  for (const MetricsRow& row : batch.steps) RETURN_IF_ERROR(metrics_.WriteStep(row));
  for (const MetricsRow& row : batch.validations) RETURN_IF_ERROR(metrics_.WriteValidation(row));
  for (const MetricsRow& row : batch.tests) RETURN_IF_ERROR(metrics_.WriteTest(row));
  std::map<std::string, uint64_t> newest_line;
  for (const LogRow& row : batch.logs) {
    newest_line[row.job_id] = row.sequence;
    RETURN_IF_ERROR(db_.Put<LogsTable>(row));
  }
  for (const auto& [job_id, newest] : newest_line) {
    if (newest <= kKeptLogLines) continue;
    RETURN_IF_ERROR(db_.Run("DELETE FROM logs WHERE job_id = ? AND sequence <= ?", job_id,
                            newest - kKeptLogLines));
  }
  for (const EventRow& row : batch.events) {
    RETURN_IF_ERROR(db_.Put<EventsTable>(row));
    // The rule of jobs::DropOldest: the oldest events of the new event's kind are removed.
    RETURN_IF_ERROR(db_.Run(
        "DELETE FROM events WHERE job_id = ?1 AND (reason = ?2) = (?3 = ?2) AND number <= "
        "(SELECT number FROM events WHERE job_id = ?1 AND (reason = ?2) = (?3 = ?2) "
        "ORDER BY number DESC LIMIT 1 OFFSET ?4)",
        row.job_id, std::string(jobs::kSampleReason), row.event.reason,
        uint64_t{jobs::kKeptEvents}));
  }
  for (const DeliveryRow& row : batch.deliveries) RETURN_IF_ERROR(db_.Put<DeliveriesTable>(row));
  return absl::OkStatus();
}

}  // namespace muster::store
