#include "coordinator/store/memory_store.h"

#include <algorithm>

namespace muster::store {

absl::Status MemoryStore::Commit(const Batch& batch) {
  for (const Batch::JobRow& row : batch.jobs) {
    jobs::Job& stored = jobs_[row.job.id];
    jobs::Job next = row.job;
    next.version = next.version_ceiling;
    next.end_told = absl::InfinitePast();
    next.patience_end = absl::InfiniteFuture();
    if (row.lists == Batch::JobRow::Lists::kKeep) {
      next.ranks = stored.ranks;
      for (uint32_t rank : row.changed_ranks) next.ranks.at(rank) = row.job.ranks.at(rank);
      next.checkpoints = stored.checkpoints;
      next.dropped_checkpoints = stored.dropped_checkpoints;
      next.failures = stored.failures;
      next.commands = stored.commands;
    }
    stored = std::move(next);
  }
  for (const NodeRow& row : batch.nodes) nodes_[row.node] = row;
  for (const std::string& node : batch.removed_nodes) nodes_.erase(node);
  for (const RequestRow& row : batch.requests) requests_[row.request_id] = row;
  for (const StepRow& row : batch.steps) steps_[{row.job_id, row.step}] = row;
  for (const LogRow& row : batch.logs) {
    auto& lines = logs_[row.job_id];
    lines[row.sequence] = row;
    while (lines.size() > kKeptLogLines) lines.erase(lines.begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<Image> MemoryStore::Load() {
  Image image;
  for (const auto& [id, job] : jobs_) image.jobs.push_back(job);
  std::sort(image.jobs.begin(), image.jobs.end(),
            [](const jobs::Job& a, const jobs::Job& b) { return a.number < b.number; });
  for (const auto& [node, row] : nodes_) image.nodes.push_back(row);
  for (const auto& [id, row] : requests_) image.requests.push_back(row);
  return image;
}

absl::StatusOr<std::vector<StepRow>> MemoryStore::ReadSteps(const std::string& job_id,
                                                            uint64_t from_step, size_t limit) {
  std::vector<StepRow> rows;
  for (auto row = steps_.lower_bound({job_id, from_step});
       row != steps_.end() && row->first.first == job_id && rows.size() < limit; ++row) {
    rows.push_back(row->second);
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
