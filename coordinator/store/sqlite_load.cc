// The reading of the SQLite store.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/tables.h"

namespace muster::store {

namespace {

// Adds all rows of a table to `rows`.
template <typename Table, typename Row>
absl::Status AddAll(Database* db, const char* order, std::vector<Row>* rows) {
  return db->Each<Table>(order, [rows](Row row) { rows->push_back(std::move(row)); });
}

}  // namespace

absl::StatusOr<Image> SqliteStore::Load() {
  Image image;
  RETURN_IF_ERROR(Annotate(LoadInto(&image), path_));
  return image;
}

absl::Status SqliteStore::LoadInto(Image* image) {
  std::map<std::string, jobs::Job> jobs;
  RETURN_IF_ERROR(LoadJobs(&jobs));
  RETURN_IF_ERROR(LoadLists(&jobs));
  for (auto& [id, job] : jobs) {
    // Rows of lists without a job come from another tool, and are ignored.
    if (job.id.empty()) continue;
    image->last_number = std::max(image->last_number, job.number);
    image->jobs.push_back(std::move(job));
  }
  std::sort(image->jobs.begin(), image->jobs.end(),
            [](const jobs::Job& a, const jobs::Job& b) { return a.number < b.number; });
  RETURN_IF_ERROR(AddAll<NodesTable>(&db_, "ORDER BY node", &image->nodes));
  RETURN_IF_ERROR(AddAll<NodeMarksTable>(&db_, "ORDER BY node", &image->node_marks));
  RETURN_IF_ERROR(AddAll<RequestsTable>(&db_, "ORDER BY request_id", &image->requests));
  RETURN_IF_ERROR(AddAll<DeliveriesTable>(&db_, "ORDER BY number", &image->deliveries));
  ASSIGN_OR_RETURN(const uint64_t last_number,
                   db_.Number("SELECT value FROM counters WHERE name = 'last_number'"));
  image->last_number = std::max(image->last_number, last_number);
  return absl::OkStatus();
}

absl::Status SqliteStore::LoadJobs(std::map<std::string, jobs::Job>* jobs) {
  RETURN_IF_ERROR(db_.Each<JobsTable>("", [&](const jobs::JobIdentity& identity) {
    static_cast<jobs::JobIdentity&>((*jobs)[identity.id]) = identity;
  }));
  // The numbers of rows of existing jobs.
  size_t life_rows = 0, progress_rows = 0;
  bool missing = false;
  absl::Status unknown;
  RETURN_IF_ERROR(db_.Each<JobLifeTable>("", [&](const std::string& id, const jobs::LifeRow& life) {
    const auto job = jobs->find(id);
    missing = missing || job == jobs->end();
    if (missing || !unknown.ok()) return;
    absl::StatusOr<jobs::JobLife> loaded = jobs::LifeOf(life);
    if (!loaded.ok()) {
      unknown = Annotate(loaded.status(), absl::StrCat("job '", id, "'"));
      return;
    }
    static_cast<jobs::JobLife&>(job->second) = *std::move(loaded);
    job->second.version = life.version_ceiling;
    ++life_rows;
  }));
  RETURN_IF_ERROR(unknown);
  RETURN_IF_ERROR(
      db_.Each<JobProgressTable>("", [&](const std::string& id, const jobs::JobProgress& progress) {
        const auto job = jobs->find(id);
        missing = missing || job == jobs->end();
        if (missing) return;
        static_cast<jobs::JobProgress&>(job->second) = progress;
        ++progress_rows;
      }));
  if (!missing && life_rows == jobs->size() && progress_rows == jobs->size()) {
    return absl::OkStatus();
  }
  return absl::DataLossError("a row of table jobs, job_life or job_progress is missing");
}

absl::Status SqliteStore::LoadLists(std::map<std::string, jobs::Job>* jobs) {
  bool whole = true;
  RETURN_IF_ERROR(db_.Each<RanksTable>(
      "ORDER BY job_id, rank", [&](const std::string& id, uint32_t number, jobs::Rank rank) {
        auto& list = (*jobs)[id].ranks;
        whole = whole && number == list.size();
        list.push_back(std::move(rank));
      }));
  if (!whole) return absl::DataLossError("a row of table ranks is missing");
  RETURN_IF_ERROR(db_.Each<CheckpointsTable>(
      "ORDER BY job_id, generation, step, path", [&](const std::string& id, CheckpointRow row) {
        jobs::Job& job = (*jobs)[id];
        if (row.dropped) {
          job.dropped_checkpoints.push_back(row.checkpoint.path);
        } else if (row.checkpoint.origin == jobs::Origin::kFound) {
          job.found_checkpoints.push_back(std::move(row.checkpoint));
        } else {
          job.checkpoints.push_back(std::move(row.checkpoint));
        }
      }));
  RETURN_IF_ERROR(db_.Each<AttemptsTable>("ORDER BY job_id, attempt",
                                          [&](const std::string& id, jobs::AttemptEnd end) {
                                            (*jobs)[id].ended_attempts.push_back(std::move(end));
                                          }));
  RETURN_IF_ERROR(db_.Each<SettingChangesTable>(
      "ORDER BY job_id, position",
      [&](const std::string& id, uint64_t, jobs::SettingChange change) {
        (*jobs)[id].setting_changes.push_back(std::move(change));
      }));
  RETURN_IF_ERROR(db_.Each<FailuresTable>(
      "ORDER BY job_id, position", [&](const std::string& id, uint64_t, jobs::FailureNote note) {
        (*jobs)[id].failures.push_back(std::move(note));
      }));
  std::map<std::string, std::vector<commands::Command>> logs;
  RETURN_IF_ERROR(db_.Each<CommandsTable>("ORDER BY job_id, number",
                                          [&](const std::string& id, commands::Command command) {
                                            logs[id].push_back(std::move(command));
                                          }));
  for (auto& [id, log] : logs) (*jobs)[id].commands = commands::CommandLog(std::move(log));
  RETURN_IF_ERROR(
      db_.Each<TrainabilityTable>("", [&](const std::string& id, jobs::Trainability trainability) {
        (*jobs)[id].trainability = std::move(trainability);
      }));
  RETURN_IF_ERROR(db_.Each<TrainabilityChangesTable>(
      "ORDER BY job_id, version", [&](const std::string& id, jobs::TrainabilityChange change) {
        (*jobs)[id].trainability.history.push_back(std::move(change));
      }));
  return db_.Each<EventsTable>("ORDER BY job_id, number", [&](EventRow row) {
    (*jobs)[row.job_id].events.push_back(std::move(row.event));
  });
}

absl::StatusOr<std::vector<MetricsRow>> SqliteStore::ReadMetrics(MetricsOf of,
                                                                 const std::string& job_id,
                                                                 uint64_t from_step, size_t limit) {
  std::vector<MetricsRow> found;
  const auto read = [&]<typename Table>(Table) {
    return db_.Each<Table>(
        "WHERE job_id = ? AND step >= ? ORDER BY step LIMIT ?",
        [&](MetricsRow row, auto...) { found.push_back(std::move(row)); }, job_id, from_step,
        static_cast<uint64_t>(limit));
  };
  RETURN_IF_ERROR(Annotate(of == MetricsOf::kSteps         ? read(StepsTable())
                           : of == MetricsOf::kValidations ? read(ValidationsTable())
                                                           : read(TestsTable()),
                           path_));
  return found;
}

absl::StatusOr<std::vector<LogRow>> SqliteStore::ReadLogs(const std::string& job_id,
                                                          uint64_t after_sequence,
                                                          std::optional<uint32_t> rank,
                                                          size_t limit) {
  std::vector<LogRow> lines;
  const absl::Status read = db_.Each<LogsTable>(
      "WHERE job_id = ? AND sequence > ? AND (?3 IS NULL OR rank = ?3) ORDER BY sequence LIMIT ?",
      [&](LogRow row) { lines.push_back(std::move(row)); }, job_id, after_sequence, rank,
      static_cast<uint64_t>(limit));
  RETURN_IF_ERROR(Annotate(read, path_));
  return lines;
}

}  // namespace muster::store
