#include "tests/simulation/checker.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"

namespace muster::simulation {


namespace {

// The longest time until an order reaches the process that carries it out.
constexpr absl::Duration kOrdersUnderWay = absl::Seconds(5);

// More steps than any job has.
constexpr uint64_t kMostSteps = 1000;

}  // namespace

void Checker::ProcessStarts(const cluster::WorkerId& worker) {
  for (const auto& [incarnation, other] : alive_[worker.job]) {
    const auto excuse = excused_until_.find(incarnation);
    const bool excused = excuse != excused_until_.end() && timeline_.now() <= excuse->second;
    // An older database may not contain the nodes of the newest one; the epoch prevents writes of
    // their processes.
    const bool unknown = restored_.contains(worker.job);
    if (other.generation == worker.generation || excused || fences_only_ || unknown) continue;
    timeline_.Wrong("generation ", worker.generation, " of job ", worker.job, " starts while rank ",
                    other.rank, " of generation ", other.generation, " is alive");
  }
  const auto [owner, first] =
      owners_[{worker.job, worker.generation}].try_emplace(worker.rank, worker.incarnation);
  if (owner->second != worker.incarnation) {
    timeline_.Wrong("rank ", worker.rank, " of generation ", worker.generation, " of job ",
                    worker.job, " has two owners");
  }
  alive_[worker.job][worker.incarnation] = worker;
}

void Checker::Removes(const std::string& path) {
  for (const auto& [id, seen] : seen_) {
    // The musterd before the replacement of the database may have ordered the removal, with a newer
    // checkpoint recorded.
    if (timeline_.now() < restored_at_ + kOrdersUnderWay) continue;
    if (seen.checkpoints.contains(path)) {
      timeline_.Wrong("checkpoint ", path, " is removed, which is recorded");
    }
  }
}

void Checker::Committed(const store::Batch& batch, const cluster::Cluster& cluster) {
  for (const store::Batch::JobRow& row : batch.jobs) {
    if (const jobs::Job* job = cluster.Find(row.job_id); job != nullptr) CheckJob(*job);
  }
  CheckSlots(cluster);
}

void Checker::CheckJob(const jobs::Job& job) {
  Seen& seen = seen_[job.id];
  if (job.generation < seen.generation) {
    timeline_.Wrong("job ", job.id, " is in generation ", job.generation, " after ",
                    seen.generation);
  }
  if (seen.terminal && job.state() != seen.state && job.attempt == seen.attempt) {
    timeline_.Wrong("job ", job.id, " is ", jobs::Name(job.state()), " after it was ",
                    jobs::Name(seen.state));
  }
  std::set<std::string> good;
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
    if (!checkpoint.bad_reason.empty()) continue;
    good.insert(checkpoint.path);
    if (seen.checkpoints.contains(checkpoint.path)) continue;
    const auto found = disk_.checkpoints.find(checkpoint.path);
    if (found == disk_.checkpoints.end()) {
      if (!disk_.gone && !restored_.contains(job.id)) {
        timeline_.Wrong("checkpoint ", checkpoint.path, " is recorded and not there");
      }
    } else if (found->second.generation != checkpoint.generation) {
      timeline_.Wrong("checkpoint ", checkpoint.path, " of generation ", found->second.generation,
                      " is recorded as one of generation ", checkpoint.generation);
    }
  }
  for (const jobs::Rank& rank : job.ranks) {
    const auto down = down_until_.find(rank.node);
    if (job.live() && down != down_until_.end() && timeline_.now() <= down->second) {
      Struck(job.id, job.generation);
    }
  }
  // An older database does not contain which ranks have finished, so their ends count as failures.
  const size_t struck = struck_[job.id].size() + (restored_.contains(job.id) ? 1000 : 0);
  if (job.restarts > struck && !fences_only_) {
    timeline_.Wrong("job ", job.id, " has used ", job.restarts, " restarts, and failed ", struck,
                    " times");
  }
  const bool unsaved = disk_failed_ && job.reason_code == "FINAL_SAVE_FAILED";
  if (job.state() == jobs::State::kFailed && !unsaved && !seen.terminal &&
      struck <= job.plan.max_restarts && !fences_only_) {
    timeline_.Wrong("job ", job.id, " is FAILED after ", struck, " failures, allowed are ",
                    job.plan.max_restarts, ": ", job.state_reason);
  }
  seen = {job.generation, job.attempt, job.terminal(), job.state(), std::move(good)};
}

void Checker::CheckSlots(const cluster::Cluster& cluster) {
  std::set<std::pair<std::string, uint32_t>> used;
  for (const auto& [number, id] : cluster.submitted()) {
    const jobs::Job& job = *cluster.Find(id);
    if (!job.live()) continue;
    for (const jobs::Rank& rank : job.ranks) {
      if (!rank.exited && !used.insert({rank.node, rank.slot}).second) {
        timeline_.Wrong("slot ", rank.slot, " of ", rank.node, " is used twice");
      }
    }
  }
}

void Checker::Restored(const store::Image& image) {
  restored_at_ = timeline_.now();
  for (auto& [id, seen] : seen_) {
    seen = {};
    // The information about its last steps, and about the nodes that ran it, is lost.
    for (uint64_t step = 1; step <= kMostSteps; ++step) lost_steps_[id].insert(step);
    restored_.insert(id);
  }
  owners_.clear();
  for (const jobs::Job& job : image.jobs) {
    Seen& seen = seen_[job.id];
    seen.generation = job.generation;
    seen.attempt = job.attempt;
    seen.terminal = job.terminal();
    seen.state = job.state();
    for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
      if (checkpoint.bad_reason.empty()) seen.checkpoints.insert(checkpoint.path);
    }
  }
}

Training Checker::Undisturbed(const jobs::Job& job) const {
  std::vector<std::pair<int64_t, int64_t>> rates;
  if (restored_.contains(job.id) || job.attempt > 1) {
    // The log has lost some rates. Others ended with an attempt whose rank 0 could no longer report
    // that they had taken effect.
    rates = last_.at(job.id).rates;
  } else {
    for (const commands::Command& command : job.commands.commands()) {
      const bool done =
          command.applied_step.has_value() &&
          (!command.outcome.has_value() || command.outcome->code == absl::StatusCode::kOk);
      if (commands::ChangesState(command.kind) && done) {
        rates.emplace_back(*command.applied_step, command.number);
      }
    }
    std::sort(rates.begin(), rates.end());
  }
  Training training;
  auto next = rates.begin();
  while (true) {
    for (; next != rates.end() && next->first <= training.step; ++next) {
      training.learning_rate = next->second;
    }
    if (training.step >= static_cast<int64_t>(job.step)) return training;
    training.DoStep();
  }
}

void Checker::JobIsOver(const jobs::Job& job, store::Store& store) {
  if (job.state() == jobs::State::kFailed) return;
  if (job.state() == jobs::State::kSucceeded && job.step != job.plan.total_steps) {
    timeline_.Wrong("job ", job.id, " SUCCEEDED at step ", job.step, " of ", job.plan.total_steps);
  }
  const auto last = last_.find(job.id);
  // The job was stopped before it trained, or while a generation was ending.
  if (last == last_.end() || last->second.step != static_cast<int64_t>(job.step)) {
    if (job.state() == jobs::State::kSucceeded) {
      timeline_.Wrong("job ", job.id, " SUCCEEDED without having trained to its end");
    }
    return;
  }
  if (job.state() != jobs::State::kSucceeded) return;
  if (last->second.state != Undisturbed(job).state) {
    std::string rates;
    for (const auto& [step, number] : last->second.commands) {
      absl::StrAppend(&rates, " ", number, " after step ", step);
    }
    absl::StrAppend(&rates, "; the log:");
    for (const commands::Command& command : job.commands.commands()) {
      absl::StrAppend(
          &rates, " ", command.number, " after step ", command.applied_step.value_or(0), " ",
          command.outcome.has_value() ? absl::StatusCodeToString(command.outcome->code) : "open");
    }
    timeline_.Wrong("job ", job.id,
                    " ended with other parameters than a run that nothing disturbed: it did",
                    rates);
  }
  std::map<int64_t, std::vector<int64_t>> done;
  for (const auto& [step, number] : last->second.commands) done[number].push_back(step);
  for (const commands::Command& command : job.commands.commands()) {
    const auto& steps = done[static_cast<int64_t>(command.number)];
    if (command.kind == v1::Operation::CANCEL) continue;
    if (!command.outcome.has_value()) {
      timeline_.Wrong("job ", job.id, " is over, command ", command.number, " is not");
    } else if (command.outcome->code != absl::StatusCode::kOk) {
      const bool taken_back = command.outcome->code == absl::StatusCode::kCancelled;
      // A save that was not reported is made again, and may be cancelled before it is made.
      const bool lasts =
          commands::ChangesState(command.kind) && job.attempt == 1 && !restored_.contains(job.id);
      if (!steps.empty() && taken_back && lasts) {
        timeline_.Wrong("command ", command.number, " was taken back and done");
      }
    } else if (commands::ChangesState(command.kind) && !restored_.contains(job.id) &&
               job.attempt == 1) {
      if (steps.size() != 1) {
        timeline_.Wrong("command ", command.number, " of job ", job.id, " took effect ",
                        steps.size(), " times");
      } else if (static_cast<uint64_t>(steps[0]) != command.applied_step) {
        timeline_.Wrong("command ", command.number, " of job ", job.id, " took effect after step ",
                        steps[0], ", acknowledged is ", *command.applied_step);
      }
    }
  }
  // Generations overlap: steps may be reported by one, by the other, or by none.
  if (fences_only_) return;
  const auto rows = store.ReadMetrics(store::MetricsOf::kSteps, job.id, 0, 100000);
  uint64_t next = 1;
  const std::set<uint64_t>& lost = lost_steps_[job.id];
  for (const store::MetricsRow& row : *rows) {
    while (next < row.step && lost.contains(next)) ++next;
    if (row.step != next++) {
      return timeline_.Wrong("job ", job.id, ": metrics go on with step ", row.step, ", not ",
                             next - 1);
    }
  }
  while (next <= job.step && lost.contains(next)) ++next;
  if (next != job.step + 1) {
    timeline_.Wrong("job ", job.id, ": metrics end at step ", next - 1, " of ", job.step);
  }
  const bool told = !rows->empty() && rows->back().step == job.step && !restored_.contains(job.id);
  if (told && rows->back().metrics != last->second.metrics()) {
    timeline_.Wrong("job ", job.id, ": what was measured last is not what its ranks did");
  }
}

}  // namespace muster::simulation
