#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <iterator>

#include "coordinator/jobs/events.h"

namespace muster::store {

absl::Status MemoryStore::Commit(const Batch& batch) {
  for (const std::string& id : batch.removed_jobs) {
    jobs_.erase(id);
    logs_.erase(id);
    steps_.erase(id);
    passes_.erase(id);
  }
  for (const std::string& id : batch.removed_requests) requests_.erase(id);
  last_number_ = std::max(last_number_, batch.last_number);
  for (const Batch::JobRow& row : batch.jobs) {
    last_number_ = std::max(last_number_, row.job.number);
    jobs::Job& stored = jobs_[row.job.id];
    jobs::Job next = row.job;
    next.version = next.version_ceiling;
    next.stored_events = 0;
    next.events = stored.events;
    next.end_told = absl::InfinitePast();
    next.patience_end = absl::InfiniteFuture();
    if (row.lists == Batch::JobRow::Lists::kKeep) {
      next.ranks = stored.ranks;
      for (uint32_t rank : row.changed_ranks) next.ranks.at(rank) = row.job.ranks.at(rank);
      next.checkpoints = stored.checkpoints;
      next.dropped_checkpoints = stored.dropped_checkpoints;
      next.found_checkpoints = stored.found_checkpoints;
      next.failures = stored.failures;
      next.ended_attempts = stored.ended_attempts;
      next.commands = stored.commands;
      next.trainability = stored.trainability;
    }
    stored = std::move(next);
  }
  for (const NodeRow& row : batch.nodes) nodes_[row.node] = row;
  for (const std::string& node : batch.removed_nodes) nodes_.erase(node);
  for (const NodeMarkRow& row : batch.node_marks) node_marks_[row.node] = row;
  for (const RequestRow& row : batch.requests) requests_[row.request_id] = row;
  for (const StepRow& row : batch.steps) WriteStep(row);
  for (const ValidationRow& row : batch.validations) WriteValidation(row);
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

void MemoryStore::WriteStep(const StepRow& row) {
  auto& steps = steps_[row.job_id];
  auto& passes = passes_[row.job_id];
  steps.erase(steps.upper_bound(row.step), steps.end());
  passes.erase(passes.lower_bound(row.step), passes.end());
  steps[row.step] = row;
  std::erase_if(steps, [&](const auto& kept) {
    return !metrics::Keeps(kept.first, row.step, options_.kept_metrics);
  });
}

void MemoryStore::WriteValidation(const ValidationRow& row) {
  auto& passes = passes_[row.job_id];
  const auto next = passes.lower_bound(row.step);
  const uint64_t number = next == passes.begin() ? 1 : std::prev(next)->second.number + 1;
  passes[row.step] = {number, row};
  std::erase_if(passes, [&](const auto& kept) {
    return !metrics::Keeps(kept.second.number, number, options_.kept_metrics);
  });
}

absl::StatusOr<Image> MemoryStore::Load() {
  Image image;
  for (const auto& [id, job] : jobs_) image.jobs.push_back(job);
  std::sort(image.jobs.begin(), image.jobs.end(),
            [](const jobs::Job& a, const jobs::Job& b) { return a.number < b.number; });
  for (const auto& [node, row] : nodes_) image.nodes.push_back(row);
  for (const auto& [node, row] : node_marks_) image.node_marks.push_back(row);
  for (const auto& [id, row] : requests_) image.requests.push_back(row);
  image.last_number = last_number_;
  return image;
}

absl::StatusOr<std::vector<StepRow>> MemoryStore::ReadSteps(const std::string& job_id,
                                                            uint64_t from_step, size_t limit) {
  std::vector<StepRow> rows;
  const auto& steps = steps_[job_id];
  for (auto row = steps.lower_bound(from_step); row != steps.end() && rows.size() < limit; ++row) {
    rows.push_back(row->second);
  }
  return rows;
}

absl::StatusOr<std::vector<ValidationRow>> MemoryStore::ReadValidations(const std::string& job_id,
                                                                        uint64_t from_step,
                                                                        size_t limit) {
  std::vector<ValidationRow> rows;
  const auto& passes = passes_[job_id];
  for (auto pass = passes.lower_bound(from_step); pass != passes.end() && rows.size() < limit;
       ++pass) {
    rows.push_back(pass->second.row);
  }
  return rows;
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
