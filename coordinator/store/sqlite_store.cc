#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/private_directory.h"
#include "common/status/status.h"
#include "coordinator/jobs/events.h"
#include "coordinator/store/database_file.h"
#include "coordinator/store/migration.h"
#include "coordinator/store/tables.h"

namespace muster::store {

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& directory,
                                                               const StoreOptions& options) {
  // Files of musterd, and of whoever starts it (client/cli/local_coordinator.cc).
  const absl::Status made = files::MakePrivateDirectory(
      directory, {"muster.db*", "lock", "ballast", "owner", "address", "*.log", "local-agent.pid"});
  if (!made.ok()) return Annotate(made, "--state");
  std::unique_ptr<SqliteStore> store(new SqliteStore(directory, options));
  RETURN_IF_ERROR(store->Lock(directory));
  absl::Status opened = store->OpenFile();
  // On a full disk there is no space for the files that SQLite keeps beside this one. If it cannot
  // make them, its error does not say why.
  const bool full = absl::IsResourceExhausted(opened) ||
                    (absl::IsUnavailable(opened) && store->ballast_.DiskIsFull());
  if (full && store->ballast_.Release()) {
    store->db_.Close();
    opened = store->OpenFile();
    if (!opened.ok()) {
      // The next start needs the ballast again.
      store->db_.Close();
      store->ballast_.Restore().IgnoreError();
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
      absl::IsResourceExhausted(store->ballast_.Restore()) && !store->HasRoomWithin();
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
  RETURN_IF_ERROR(CheckIsOwn(db_.get()));
  RETURN_IF_ERROR(CheckVersion(db_.get()));
  RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA synchronous=FULL"));
  return Migrate(db_.get());
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

bool SqliteStore::RestoreReserve() { return ballast_.Restore().ok() || HasRoomWithin(); }

bool SqliteStore::HasRoomWithin() {
  const auto pages = db_.Number("PRAGMA freelist_count");
  const auto page = db_.Number("PRAGMA page_size");
  return pages.ok() && page.ok() && *pages * *page >= uint64_t{Ballast::kBytes};
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
    if (row.event.number <= jobs::kKeptEvents) continue;
    RETURN_IF_ERROR(db_.Run("DELETE FROM events WHERE job_id = ? AND number <= ?", row.job_id,
                            row.event.number - jobs::kKeptEvents));
  }
  for (const DeliveryRow& row : batch.deliveries) RETURN_IF_ERROR(db_.Put<DeliveriesTable>(row));
  return absl::OkStatus();
}

}  // namespace muster::store
