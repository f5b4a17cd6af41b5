#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

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
  // Of musterd, and of who starts it (client/cli/local_coordinator.cc).
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
    store->CloseFile();
    opened = store->OpenFile();
    if (!opened.ok()) {
      // The next start needs the ballast again.
      store->CloseFile();
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
  CloseFile();
  if (lock_fd_ >= 0) close(lock_fd_);
}

void SqliteStore::CloseFile() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
  sqlite3_close(db_);
  db_ = nullptr;
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
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path_.c_str(), &db_, kFlags, nullptr) != SQLITE_OK) {
    return SqliteError(db_, "open");
  }
  // For people who read the file with the sqlite3 tool.
  sqlite3_busy_timeout(db_, 5000);
  RETURN_IF_ERROR(CheckIsOwn(db_));
  RETURN_IF_ERROR(CheckVersion(db_));
  RETURN_IF_ERROR(Execute(db_, "PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute(db_, "PRAGMA synchronous=FULL"));
  return Migrate(db_);
}

absl::Status SqliteStore::Commit(const Batch& batch) {
  RETURN_IF_ERROR(Statement(db_, &statements_, "BEGIN IMMEDIATE").Run());
  absl::Status status = Write(batch);
  if (status.ok()) status = Statement(db_, &statements_, "COMMIT").Run();
  if (!status.ok()) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    steps_.newest.clear();
    validations_.newest.clear();
    tests_.newest.clear();
    newest_generations_.clear();
  }
  return Annotate(status, path_);
}

bool SqliteStore::RestoreReserve() { return ballast_.Restore().ok() || HasRoomWithin(); }

bool SqliteStore::HasRoomWithin() {
  const auto number = [&](const char* sql) {
    Statement statement(db_, &statements_, sql);
    return statement.Next() ? statement.Int() : 0;
  };
  return number("PRAGMA freelist_count") * number("PRAGMA page_size") >= Ballast::kBytes;
}

absl::Status SqliteStore::Remove(const Batch& batch) {
  for (const std::string& id : batch.removed_jobs) {
    RETURN_IF_ERROR(Statement(db_, &statements_, "DELETE FROM jobs WHERE id = ?").Bind(id).Run());
    for (const char* table :
         {"job_life", "job_progress", "ranks", "checkpoints", "failures", "commands",
          "trainability", "trainability_changes", "attempts", "setting_changes", "steps",
          "validations", "tests", "logs", "events"}) {
      RETURN_IF_ERROR(
          Statement(db_, &statements_, absl::StrCat("DELETE FROM ", table, " WHERE job_id = ?"))
              .Bind(id)
              .Run());
    }
    steps_.newest.erase(id);
    validations_.newest.erase(id);
    tests_.newest.erase(id);
    newest_generations_.erase(id);
  }
  for (const std::string& id : batch.removed_requests) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM requests WHERE request_id = ?").Bind(id).Run());
  }
  for (const uint64_t number : batch.removed_deliveries) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM deliveries WHERE number = ?").Bind(number).Run());
  }
  if (batch.last_number == 0) return absl::OkStatus();
  return Statement(db_, &statements_, "REPLACE INTO counters VALUES ('last_number', ?)")
      .Bind(batch.last_number)
      .Run();
}

absl::Status SqliteStore::Write(const Batch& batch) {
  RETURN_IF_ERROR(Remove(batch));
  for (const Batch::JobRow& row : batch.jobs) RETURN_IF_ERROR(WriteJob(row));
  for (const NodeRow& row : batch.nodes) RETURN_IF_ERROR(PutRow<NodesTable>(row));
  for (const std::string& node : batch.removed_nodes) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM nodes WHERE node = ?").Bind(node).Run());
  }
  for (const NodeMarkRow& row : batch.node_marks) RETURN_IF_ERROR(PutRow<NodeMarksTable>(row));
  for (const std::string& node : batch.removed_node_marks) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM node_marks WHERE node = ?").Bind(node).Run());
  }
  for (const RequestRow& row : batch.requests) RETURN_IF_ERROR(PutRow<RequestsTable>(row));
  for (const MetricsRow& row : batch.steps) RETURN_IF_ERROR(WriteStep(row));
  for (const MetricsRow& row : batch.validations) {
    RETURN_IF_ERROR(WritePass<ValidationsTable>(row, &validations_));
  }
  for (const MetricsRow& row : batch.tests) {
    RETURN_IF_ERROR(WritePass<TestsTable>(row, &tests_));
  }
  std::map<std::string, uint64_t> newest_line;
  for (const LogRow& row : batch.logs) {
    newest_line[row.job_id] = row.sequence;
    RETURN_IF_ERROR(PutRow<LogsTable>(row));
  }
  for (const auto& [job_id, newest] : newest_line) {
    if (newest <= kKeptLogLines) continue;
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM logs WHERE job_id = ? AND sequence <= ?")
            .Bind(job_id)
            .Bind(newest - kKeptLogLines)
            .Run());
  }
  for (const EventRow& row : batch.events) {
    RETURN_IF_ERROR(PutRow<EventsTable>(row));
    if (row.event.number <= jobs::kKeptEvents) continue;
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "DELETE FROM events WHERE job_id = ? AND number <= ?")
            .Bind(row.job_id)
            .Bind(row.event.number - jobs::kKeptEvents)
            .Run());
  }
  for (const DeliveryRow& row : batch.deliveries) RETURN_IF_ERROR(PutRow<DeliveriesTable>(row));
  return absl::OkStatus();
}

absl::Status SqliteStore::WriteStep(const MetricsRow& row) {
  uint64_t newest = row.step;
  uint64_t newest_generation = row.generation;
  if (!FollowsAllSteps(row)) {
    // The step may be computed again: then the rows of later steps are not valid any more.
    RETURN_IF_ERROR(Statement(db_, &statements_,
                              "DELETE FROM steps WHERE job_id = ? AND step > ? AND generation < ?")
                        .Bind(row.job_id)
                        .Bind(row.step)
                        .Bind(row.generation)
                        .Run());
    for (const char* passes : {"validations", "tests"}) {
      RETURN_IF_ERROR(Statement(db_, &statements_,
                                absl::StrCat("DELETE FROM ", passes,
                                             " WHERE job_id = ? AND step >= ? AND generation < ?"))
                          .Bind(row.job_id)
                          .Bind(row.step)
                          .Bind(row.generation)
                          .Run());
    }
    ASSIGN_OR_RETURN(const bool late, IsLate(row.job_id, row.step, row.generation));
    if (late) return absl::OkStatus();
    ASSIGN_OR_RETURN(newest, Newest(steps_, row.job_id));
    newest = std::max(newest, row.step);
    const Numbering generations{.table = "steps", .column = "generation"};
    ASSIGN_OR_RETURN(newest_generation, Newest(generations, row.job_id));
    newest_generation = std::max(newest_generation, row.generation);
  }
  RETURN_IF_ERROR(PutRow<StepsTable>(row));
  newest_generations_[row.job_id] = newest_generation;
  return Thin(row.job_id, newest, &steps_);
}

bool SqliteStore::FollowsAllSteps(const MetricsRow& row) const {
  const auto step = steps_.newest.find(row.job_id);
  const auto generation = newest_generations_.find(row.job_id);
  return step != steps_.newest.end() && step->second < row.step &&
         generation != newest_generations_.end() && generation->second <= row.generation;
}

absl::StatusOr<bool> SqliteStore::IsLate(const std::string& job_id, uint64_t step,
                                         uint64_t generation) {
  Statement newer(db_, &statements_,
                  "SELECT 1 FROM steps WHERE job_id = ? AND step <= ? AND generation > ? LIMIT 1");
  newer.Bind(job_id).Bind(step).Bind(generation);
  const bool late = newer.Next();
  RETURN_IF_ERROR(newer.status());
  return late;
}

absl::StatusOr<uint64_t> SqliteStore::Newest(const Numbering& numbering,
                                             const std::string& job_id) {
  Statement newest(db_, &statements_,
                   absl::StrCat("SELECT max(", numbering.column, ") FROM ", numbering.table,
                                " WHERE job_id = ?"));
  newest.Bind(job_id);
  const uint64_t number = newest.Next() && !newest.SkipNull() ? newest.Uint() : 0;
  RETURN_IF_ERROR(newest.status());
  return number;
}

template <typename Table>
absl::Status SqliteStore::WritePass(const MetricsRow& row, Numbering* passes) {
  if (!FollowsAllSteps(row)) {
    ASSIGN_OR_RETURN(const bool late, IsLate(row.job_id, row.step, row.generation));
    if (late) return absl::OkStatus();
  }
  uint64_t pass = 1;
  {
    Statement before(
        db_, &statements_,
        absl::StrCat("SELECT max(pass) FROM ", passes->table, " WHERE job_id = ? AND step < ?"));
    before.Bind(row.job_id).Bind(row.step);
    if (before.Next() && !before.SkipNull()) pass = before.Uint() + 1;
    RETURN_IF_ERROR(before.status());
  }
  RETURN_IF_ERROR(PutRow<Table>(row, pass));
  ASSIGN_OR_RETURN(const uint64_t newest, Newest(*passes, row.job_id));
  return Thin(row.job_id, newest, passes);
}

absl::Status SqliteStore::Thin(const std::string& job_id, uint64_t newest, Numbering* numbering) {
  std::vector<uint64_t> dropped;
  const auto known = numbering->newest.find(job_id);
  if (known != numbering->newest.end() && known->second + 1 == newest) {
    dropped = metrics::DroppedBy(newest, options_.kept_metrics);
  } else {
    // The first row since the file was opened, perhaps with a smaller limit, or a row that is
    // written again.
    Statement rows(db_, &statements_,
                   absl::StrCat("SELECT ", numbering->column, " FROM ", numbering->table,
                                " WHERE job_id = ?"));
    rows.Bind(job_id);
    while (rows.Next()) {
      const uint64_t number = rows.Uint();
      if (!metrics::Keeps(number, newest, options_.kept_metrics)) dropped.push_back(number);
    }
    RETURN_IF_ERROR(rows.status());
  }
  for (const uint64_t number : dropped) {
    RETURN_IF_ERROR(Statement(db_, &statements_,
                              absl::StrCat("DELETE FROM ", numbering->table,
                                           " WHERE job_id = ? AND ", numbering->column, " = ?"))
                        .Bind(job_id)
                        .Bind(number)
                        .Run());
  }
  numbering->newest[job_id] = newest;
  return absl::OkStatus();
}

}  // namespace muster::store
