// Reading the SQLite store.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/tables.h"

namespace muster::store {

absl::StatusOr<Image> SqliteStore::Load() {
  std::map<std::string, jobs::Job> jobs;
  RETURN_IF_ERROR(Annotate(LoadJobs(&jobs), path_));
  RETURN_IF_ERROR(Annotate(LoadLists(&jobs), path_));
  Image image;
  for (auto& [id, job] : jobs) {
    // Rows of lists whose job does not exist. Such a file was written by another tool.
    if (job.id.empty()) continue;
    image.last_number = std::max(image.last_number, job.number);
    image.jobs.push_back(std::move(job));
  }
  std::sort(image.jobs.begin(), image.jobs.end(),
            [](const jobs::Job& a, const jobs::Job& b) { return a.number < b.number; });
  auto nodes = db_.Select<NodesTable>("ORDER BY node");
  while (nodes.Next()) image.nodes.push_back(std::get<NodeRow>(nodes.row()));
  RETURN_IF_ERROR(Annotate(nodes.status(), path_));
  auto marks = db_.Select<NodeMarksTable>("ORDER BY node");
  while (marks.Next()) image.node_marks.push_back(std::get<NodeMarkRow>(marks.row()));
  RETURN_IF_ERROR(Annotate(marks.status(), path_));
  auto requests = db_.Select<RequestsTable>("ORDER BY request_id");
  while (requests.Next()) image.requests.push_back(std::get<RequestRow>(requests.row()));
  RETURN_IF_ERROR(Annotate(requests.status(), path_));
  auto deliveries = db_.Select<DeliveriesTable>("ORDER BY number");
  while (deliveries.Next()) {
    image.deliveries.push_back(std::get<DeliveryRow>(std::move(deliveries.row())));
  }
  RETURN_IF_ERROR(Annotate(deliveries.status(), path_));
  const auto last_number = db_.Number("SELECT value FROM counters WHERE name = 'last_number'");
  RETURN_IF_ERROR(Annotate(last_number.status(), path_));
  image.last_number = std::max(image.last_number, *last_number);
  return image;
}

absl::Status SqliteStore::LoadJobs(std::map<std::string, jobs::Job>* jobs) {
  auto handed_in = db_.Select<JobsTable>("");
  while (handed_in.Next()) {
    auto& [identity] = handed_in.row();
    static_cast<jobs::JobIdentity&>((*jobs)[identity.id]) = identity;
  }
  RETURN_IF_ERROR(handed_in.status());
  const absl::Status missing =
      absl::DataLossError("a row of table jobs, job_life or job_progress is missing");
  size_t life_rows = 0, progress_rows = 0;
  auto lives = db_.Select<JobLifeTable>("");
  for (; lives.Next(); ++life_rows) {
    auto& [job_id, life] = lives.row();
    if (!jobs->contains(job_id)) return missing;
    jobs::Job& job = (*jobs)[job_id];
    absl::StatusOr<jobs::JobLife> loaded = jobs::LifeOf(life);
    if (!loaded.ok()) return Annotate(loaded.status(), absl::StrCat("job '", job_id, "'"));
    static_cast<jobs::JobLife&>(job) = *std::move(loaded);
    job.version = life.version_ceiling;
  }
  RETURN_IF_ERROR(lives.status());
  auto courses = db_.Select<JobProgressTable>("");
  for (; courses.Next(); ++progress_rows) {
    auto& [job_id, progress] = courses.row();
    if (!jobs->contains(job_id)) return missing;
    static_cast<jobs::JobProgress&>((*jobs)[job_id]) = progress;
  }
  RETURN_IF_ERROR(courses.status());
  const bool whole = life_rows == jobs->size() && progress_rows == jobs->size();
  return whole ? absl::OkStatus() : missing;
}

absl::Status SqliteStore::LoadLists(std::map<std::string, jobs::Job>* jobs) {
  auto ranks = db_.Select<RanksTable>("ORDER BY job_id, rank");
  while (ranks.Next()) {
    auto& [job_id, number, rank] = ranks.row();
    auto& list = (*jobs)[job_id].ranks;
    if (number != list.size()) return absl::DataLossError("a row of table ranks is missing");
    list.push_back(std::move(rank));
  }
  RETURN_IF_ERROR(ranks.status());
  auto checkpoints = db_.Select<CheckpointsTable>("ORDER BY job_id, generation, step, path");
  while (checkpoints.Next()) {
    auto& [job_id, row] = checkpoints.row();
    jobs::Job& job = (*jobs)[job_id];
    if (row.dropped) {
      job.dropped_checkpoints.push_back(row.checkpoint.path);
    } else if (row.checkpoint.origin == jobs::Origin::kFound) {
      job.found_checkpoints.push_back(std::move(row.checkpoint));
    } else {
      job.checkpoints.push_back(std::move(row.checkpoint));
    }
  }
  RETURN_IF_ERROR(checkpoints.status());
  auto attempts = db_.Select<AttemptsTable>("ORDER BY job_id, attempt");
  while (attempts.Next()) {
    auto& [job_id, end] = attempts.row();
    (*jobs)[job_id].ended_attempts.push_back(std::move(end));
  }
  RETURN_IF_ERROR(attempts.status());
  auto settings = db_.Select<SettingChangesTable>("ORDER BY job_id, position");
  while (settings.Next()) {
    auto& [job_id, position, change] = settings.row();
    (*jobs)[job_id].setting_changes.push_back(std::move(change));
  }
  RETURN_IF_ERROR(settings.status());
  auto failures = db_.Select<FailuresTable>("ORDER BY job_id, position");
  while (failures.Next()) {
    auto& [job_id, position, note] = failures.row();
    (*jobs)[job_id].failures.push_back(std::move(note));
  }
  RETURN_IF_ERROR(failures.status());
  std::map<std::string, std::vector<commands::Command>> logs;
  auto commands = db_.Select<CommandsTable>("ORDER BY job_id, number");
  while (commands.Next()) {
    auto& [job_id, command] = commands.row();
    logs[job_id].push_back(std::move(command));
  }
  RETURN_IF_ERROR(commands.status());
  for (auto& [id, log] : logs) (*jobs)[id].commands = commands::CommandLog(std::move(log));
  auto in_force = db_.Select<TrainabilityTable>("");
  while (in_force.Next()) {
    auto& [job_id, trainability] = in_force.row();
    (*jobs)[job_id].trainability = std::move(trainability);
  }
  RETURN_IF_ERROR(in_force.status());
  auto changes = db_.Select<TrainabilityChangesTable>("ORDER BY job_id, version");
  while (changes.Next()) {
    auto& [job_id, change] = changes.row();
    (*jobs)[job_id].trainability.history.push_back(std::move(change));
  }
  RETURN_IF_ERROR(changes.status());
  auto events = db_.Select<EventsTable>("ORDER BY job_id, number");
  while (events.Next()) {
    auto& [row] = events.row();
    (*jobs)[row.job_id].events.push_back(std::move(row.event));
  }
  return events.status();
}

template <typename Table>
absl::StatusOr<std::vector<MetricsRow>> SqliteStore::ReadMetrics(const std::string& job_id,
                                                                 uint64_t from_step, size_t limit) {
  std::vector<MetricsRow> found;
  auto rows = db_.Select<Table>("WHERE job_id = ? AND step >= ? ORDER BY step LIMIT ?", job_id,
                                from_step, static_cast<uint64_t>(limit));
  while (rows.Next()) found.push_back(std::get<MetricsRow>(std::move(rows.row())));
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  return found;
}

absl::StatusOr<std::vector<MetricsRow>> SqliteStore::ReadSteps(const std::string& job_id,
                                                               uint64_t from_step, size_t limit) {
  return ReadMetrics<StepsTable>(job_id, from_step, limit);
}

absl::StatusOr<std::vector<MetricsRow>> SqliteStore::ReadValidations(const std::string& job_id,
                                                                     uint64_t from_step,
                                                                     size_t limit) {
  return ReadMetrics<ValidationsTable>(job_id, from_step, limit);
}

absl::StatusOr<std::vector<MetricsRow>> SqliteStore::ReadTests(const std::string& job_id,
                                                               uint64_t from_step, size_t limit) {
  return ReadMetrics<TestsTable>(job_id, from_step, limit);
}

absl::StatusOr<std::vector<LogRow>> SqliteStore::ReadLogs(const std::string& job_id,
                                                          uint64_t after_sequence,
                                                          std::optional<uint32_t> rank,
                                                          size_t limit) {
  std::vector<LogRow> lines;
  auto rows = db_.Select<LogsTable>(
      "WHERE job_id = ? AND sequence > ? AND (?3 IS NULL OR rank = ?3) ORDER BY sequence LIMIT ?",
      job_id, after_sequence, rank, static_cast<uint64_t>(limit));
  while (rows.Next()) lines.push_back(std::get<LogRow>(std::move(rows.row())));
  RETURN_IF_ERROR(Annotate(rows.status(), path_));
  return lines;
}

}  // namespace muster::store
