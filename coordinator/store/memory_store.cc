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
    steps_.erase(id);
    validations_.erase(id);
    tests_.erase(id);
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
  for (const MetricsRow& row : batch.steps) WriteStep(row);
  for (const MetricsRow& row : batch.validations) WritePass(row, &validations_[row.job_id]);
  for (const MetricsRow& row : batch.tests) WritePass(row, &tests_[row.job_id]);
  for (const LogRow& row : batch.logs) {
    auto& lines = logs_[row.job_id];
    lines[row.sequence] = row;
    while (lines.size() > kKeptLogLines) lines.erase(lines.begin());
  }
  for (const EventRow& row : batch.events) {
    auto& events = jobs_.at(row.job_id).events;
    events.push_back(row.event);
    if (events.size() > jobs::kKeptEvents) events.erase(events.begin());
  }
  return absl::OkStatus();
}

void MemoryStore::WriteStep(const MetricsRow& row) {
  auto& steps = steps_[row.job_id];
  std::erase_if(steps, [&](const auto& kept) {
    return kept.first > row.step && kept.second.generation < row.generation;
  });
  for (Passes* passes : {&validations_[row.job_id], &tests_[row.job_id]}) {
    std::erase_if(*passes, [&](const auto& kept) {
      return kept.first >= row.step && kept.second.row.generation < row.generation;
    });
  }
  if (IsLate(row.job_id, row.step, row.generation)) return;
  steps[row.step] = row;
  const uint64_t newest = steps.rbegin()->first;
  std::erase_if(steps, [&](const auto& kept) {
    return !metrics::Keeps(kept.first, newest, options_.kept_metrics);
  });
}

bool MemoryStore::IsLate(const std::string& job_id, uint64_t step, uint64_t generation) const {
  const auto job = steps_.find(job_id);
  if (job == steps_.end()) return false;
  return std::any_of(job->second.begin(), job->second.upper_bound(step),
                     [&](const auto& kept) { return kept.second.generation > generation; });
}

void MemoryStore::WritePass(const MetricsRow& row, Passes* passes) {
  const auto next = passes->lower_bound(row.step);
  const uint64_t number = next == passes->begin() ? 1 : std::prev(next)->second.number + 1;
  if (IsLate(row.job_id, row.step, row.generation)) return;
  (*passes)[row.step] = {number, row};
  uint64_t newest = 0;
  for (const auto& [step, pass] : *passes) newest = std::max(newest, pass.number);
  std::erase_if(*passes, [&](const auto& kept) {
    return !metrics::Keeps(kept.second.number, newest, options_.kept_metrics);
  });
}

std::vector<MetricsRow> MemoryStore::RowsOf(const Passes& passes, uint64_t from_step,
                                            size_t limit) {
  std::vector<MetricsRow> rows;
  for (auto pass = passes.lower_bound(from_step); pass != passes.end() && rows.size() < limit;
       ++pass) {
    rows.push_back(pass->second.row);
  }
  return rows;
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

absl::StatusOr<std::vector<MetricsRow>> MemoryStore::ReadSteps(const std::string& job_id,
                                                               uint64_t from_step, size_t limit) {
  std::vector<MetricsRow> rows;
  const auto& steps = steps_[job_id];
  for (auto row = steps.lower_bound(from_step); row != steps.end() && rows.size() < limit; ++row) {
    rows.push_back(row->second);
  }
  return rows;
}

absl::StatusOr<std::vector<MetricsRow>> MemoryStore::ReadValidations(const std::string& job_id,
                                                                     uint64_t from_step,
                                                                     size_t limit) {
  return RowsOf(validations_[job_id], from_step, limit);
}

absl::StatusOr<std::vector<MetricsRow>> MemoryStore::ReadTests(const std::string& job_id,
                                                               uint64_t from_step, size_t limit) {
  return RowsOf(tests_[job_id], from_step, limit);
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
