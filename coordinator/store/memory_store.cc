#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "common/status/status.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/life_row.h"

namespace muster::store {
namespace {

template <typename Key, typename Row>
void Apply(const RowChanges<Key, Row>& changes, std::map<Key, Row>* rows) {
  for (const Key& key : changes.removed) rows->erase(key);
  for (const auto& [key, row] : changes.put) (*rows)[key] = row;
}

template <typename Key, typename Row>
std::vector<Row> Values(const std::map<Key, Row>& rows) {
  std::vector<Row> values;
  for (const auto& [key, row] : rows) values.push_back(row);
  return values;
}

}  // namespace

jobs::Job MemoryStore::Assemble(const StoredJob& stored) {
  jobs::Job job;
  static_cast<jobs::JobFields&>(job) = stored.fields;
  job.ranks = Values(stored.ranks);
  job.events = stored.events;
  for (const auto& [path, row] : stored.checkpoints) {
    if (row.dropped) {
      job.dropped_checkpoints.push_back(path);
    } else {
      const bool found = row.checkpoint.origin == jobs::Origin::kFound;
      (found ? job.found_checkpoints : job.checkpoints).push_back(row.checkpoint);
    }
  }
  for (auto* checkpoints : {&job.checkpoints, &job.found_checkpoints}) {
    std::sort(checkpoints->begin(), checkpoints->end(),
              [](const jobs::Checkpoint& a, const jobs::Checkpoint& b) {
                return std::tie(a.generation, a.step, a.path) <
                       std::tie(b.generation, b.step, b.path);
              });
  }
  job.failures = Values(stored.failures);
  job.ended_attempts = Values(stored.attempts);
  job.setting_changes = Values(stored.setting_changes);
  job.commands = commands::CommandLog(Values(stored.commands));
  job.trainability = stored.trainability;
  job.trainability.history = Values(stored.trainability_changes);
  return job;
}

absl::Status MemoryStore::Commit(const Batch& batch) {
  for (const std::string& id : batch.removed_jobs) {
    jobs_.erase(id);
    logs_.erase(id);
    for (auto& [of, jobs] : metrics_) jobs.erase(id);
  }
  for (const std::string& id : batch.removed_requests) requests_.erase(id);
  last_number_ = std::max(last_number_, batch.last_number);
  for (const Batch::JobRow& row : batch.jobs) {
    StoredJob& stored = jobs_[row.job_id];
    if (row.identity.has_value()) {
      last_number_ = std::max(last_number_, row.identity->number);
      static_cast<jobs::JobIdentity&>(stored.fields) = *row.identity;
    }
    if (row.life.has_value()) {
      ASSIGN_OR_RETURN(static_cast<jobs::JobLife&>(stored.fields), jobs::LifeOf(*row.life));
      stored.fields.version = row.life->version_ceiling;
    }
    if (row.progress.has_value()) static_cast<jobs::JobProgress&>(stored.fields) = *row.progress;
    Apply(row.ranks, &stored.ranks);
    Apply(row.checkpoints, &stored.checkpoints);
    Apply(row.failures, &stored.failures);
    Apply(row.attempts, &stored.attempts);
    Apply(row.setting_changes, &stored.setting_changes);
    Apply(row.commands, &stored.commands);
    if (row.trainability.has_value()) stored.trainability = *row.trainability;
    Apply(row.trainability_changes, &stored.trainability_changes);
  }
  for (const NodeRow& row : batch.nodes) nodes_[row.node] = row;
  for (const std::string& node : batch.removed_nodes) nodes_.erase(node);
  for (const NodeMarkRow& row : batch.node_marks) node_marks_[row.node] = row;
  for (const std::string& node : batch.removed_node_marks) node_marks_.erase(node);
  for (const RequestRow& row : batch.requests) requests_[row.request_id] = row;
  for (const uint64_t number : batch.removed_deliveries) deliveries_.erase(number);
  for (const DeliveryRow& row : batch.deliveries) deliveries_[row.number] = row;
  for (const MetricsRow& row : batch.steps) Write(MetricsOf::kSteps, row);
  for (const MetricsRow& row : batch.validations) Write(MetricsOf::kValidations, row);
  for (const MetricsRow& row : batch.tests) Write(MetricsOf::kTests, row);
  for (const LogRow& row : batch.logs) {
    auto& lines = logs_[row.job_id];
    lines[row.sequence] = row;
    while (lines.size() > kKeptLogLines) lines.erase(lines.begin());
  }
  for (const EventRow& row : batch.events) {
    auto& events = jobs_.at(row.job_id).events;
    events.push_back(row.event);
    jobs::DropOldest(&events);
  }
  return absl::OkStatus();
}

void MemoryStore::Write(MetricsOf of, const MetricsRow& row) {
  if (of == MetricsOf::kSteps) DropLater(row);
  if (IsLate(row)) return;
  auto& rows = metrics_[of][row.job_id];
  const auto next = rows.lower_bound(row.step);
  uint64_t number = next == rows.begin() ? 1 : std::prev(next)->second.number + 1;
  if (of == MetricsOf::kSteps) number = row.step;
  rows[row.step] = {number, row};
  uint64_t newest = 0;
  for (const auto& [step, kept] : rows) newest = std::max(newest, kept.number);
  std::erase_if(rows, [&](const auto& kept) {
    return !metrics::Keeps(kept.second.number, newest, options_.kept_metrics);
  });
}

void MemoryStore::DropLater(const MetricsRow& step) {
  for (auto& [of, jobs] : metrics_) {
    const uint64_t first = of == MetricsOf::kSteps ? step.step + 1 : step.step;
    std::erase_if(jobs[step.job_id], [&](const auto& kept) {
      return kept.first >= first && kept.second.row.generation < step.generation;
    });
  }
}

bool MemoryStore::IsLate(const MetricsRow& row) {
  const auto& steps = metrics_[MetricsOf::kSteps][row.job_id];
  return std::any_of(steps.begin(), steps.upper_bound(row.step),
                     [&](const auto& kept) { return kept.second.row.generation > row.generation; });
}

absl::StatusOr<Image> MemoryStore::Load() {
  Image image;
  for (const auto& [id, job] : jobs_) image.jobs.push_back(Assemble(job));
  std::sort(image.jobs.begin(), image.jobs.end(),
            [](const jobs::Job& a, const jobs::Job& b) { return a.number < b.number; });
  for (const auto& [node, row] : nodes_) image.nodes.push_back(row);
  for (const auto& [node, row] : node_marks_) image.node_marks.push_back(row);
  for (const auto& [id, row] : requests_) image.requests.push_back(row);
  for (const auto& [number, row] : deliveries_) image.deliveries.push_back(row);
  image.last_number = last_number_;
  return image;
}

absl::StatusOr<std::vector<MetricsRow>> MemoryStore::ReadMetrics(MetricsOf of,
                                                                 const std::string& job_id,
                                                                 uint64_t from_step, size_t limit) {
  std::vector<MetricsRow> found;
  const auto& rows = metrics_[of][job_id];
  for (auto row = rows.lower_bound(from_step); row != rows.end() && found.size() < limit; ++row) {
    found.push_back(row->second.row);
  }
  return found;
}

absl::StatusOr<std::vector<LogRow>> MemoryStore::ReadLogs(const std::string& job_id,
                                                          uint64_t after_sequence,
                                                          std::optional<uint32_t> rank,
                                                          size_t limit) {
  std::vector<LogRow> rows;
  const auto& lines = logs_[job_id];
  for (auto line = lines.upper_bound(after_sequence); line != lines.end() && rows.size() < limit;
       ++line) {
    if (!rank.has_value() || line->second.rank == *rank) rows.push_back(line->second);
  }
  return rows;
}

}  // namespace muster::store
