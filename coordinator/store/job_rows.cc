#include "coordinator/store/job_rows.h"

#include <utility>
#include <vector>

namespace muster::store {
namespace {

// Returns the rows to write so that `stored` becomes `now`, and sets `stored` to `now`. `key`:
// makes the key of a row from its position and its value.
template <typename Key, typename Row, typename KeyOf>
RowChanges<Key, Row> Compare(const std::vector<Row>& now, KeyOf key, std::map<Key, Row>* stored) {
  RowChanges<Key, Row> changes;
  std::set<Key> present;
  for (size_t position = 0; position < now.size(); ++position) {
    const Row& row = now[position];
    const Key at = static_cast<Key>(key(position, row));
    present.insert(at);
    const auto [known, fresh] = stored->try_emplace(at, row);
    if (!fresh && known->second == row) continue;
    known->second = row;
    changes.put[at] = row;
  }
  for (auto row = stored->begin(); row != stored->end();) {
    if (present.contains(row->first)) {
      ++row;
      continue;
    }
    changes.removed.insert(row->first);
    row = stored->erase(row);
  }
  return changes;
}

std::vector<CheckpointRow> CheckpointsOf(const jobs::Job& job) {
  std::vector<CheckpointRow> rows;
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) rows.push_back({checkpoint});
  for (const jobs::Checkpoint& checkpoint : job.found_checkpoints) rows.push_back({checkpoint});
  for (const std::string& path : job.dropped_checkpoints) {
    rows.push_back({.checkpoint = {.path = path}, .dropped = true});
  }
  return rows;
}

}  // namespace

Batch::JobRow JobRows::TakeFields(const jobs::Job& job) {
  Batch::JobRow row{.job_id = job.id};
  if (!life_.has_value()) row.identity = job;
  if (jobs::LifeRow life = jobs::RowOf(job); life_ != life) row.life = life_ = std::move(life);
  if (const jobs::JobProgress& progress = job; progress_ != progress) {
    row.progress = progress_ = progress;
  }
  return row;
}

Batch::JobRow JobRows::TakeChanges(jobs::Job* job) {
  const auto by_position = [](size_t position, const auto&) { return position; };
  Batch::JobRow row = TakeFields(*job);
  row.ranks = Compare(job->ranks, by_position, &ranks_);
  row.checkpoints = Compare(
      CheckpointsOf(*job), [](size_t, const CheckpointRow& c) { return c.checkpoint.path; },
      &checkpoints_);
  row.failures = Compare(job->failures, by_position, &failures_);
  row.attempts = Compare(
      job->ended_attempts, [](size_t, const jobs::AttemptEnd& end) { return end.attempt; },
      &attempts_);
  row.setting_changes = Compare(job->setting_changes, by_position, &setting_changes_);
  // Setting changes come with another spec.
  if (row.setting_changes.size() > 0) row.identity = *job;
  for (uint64_t number : job->commands.TakeChanged()) {
    row.commands.put[number] = *job->commands.Find(number);
  }
  const jobs::Trainability& trainability = job->trainability;
  if (trainability.version != trainability_.version ||
      trainability.in_force != trainability_.in_force ||
      trainability.parameters != trainability_.parameters) {
    trainability_.version = trainability.version;
    trainability_.in_force = trainability.in_force;
    trainability_.parameters = trainability.parameters;
    row.trainability = trainability_;
  }
  row.trainability_changes = Compare(
      trainability.history,
      [](size_t, const jobs::TrainabilityChange& change) { return change.version; },
      &trainability_changes_);
  return row;
}

Batch::JobRow JobRows::TakeRanks(const jobs::Job& job, const std::set<uint32_t>& ranks) {
  Batch::JobRow row = TakeFields(job);
  for (uint32_t rank : ranks) row.ranks.put[rank] = ranks_[rank] = job.ranks.at(rank);
  return row;
}

}  // namespace muster::store
