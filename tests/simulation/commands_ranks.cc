// The common actions of the ranks: the roll call at each step boundary, the commands that are due,
// and checkpoints.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/commands_simulation.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::simulation {

CommandsSimulation::Rank* CommandsSimulation::RankNumber(uint32_t number) {
  for (Rank& rank : ranks_) {
    if (rank.id.rank == number && rank.id.generation == job().generation) return &rank;
  }
  return nullptr;
}

std::vector<CommandsSimulation::Rank*> CommandsSimulation::Together() {
  std::vector<Rank*> all;
  if (!job().live() || job().ending()) return {};
  for (uint32_t number = 0; number < job().ranks.size(); ++number) {
    Rank* rank = RankNumber(number);
    if (rank == nullptr || !rank->welcomed || rank->held.size() < rank->needed) return {};
    all.push_back(rank);
  }
  return all;
}

void CommandsSimulation::Begin(const std::vector<Rank*>& all) {
  session_.emplace();
  const auto saved = disk_.find(all[0]->restore_from);
  for (Rank* rank : all) {
    if (saved != disk_.end()) {
      session_->step = session_->saved_step = saved->second.step;
      Tell("goes on from ", saved->first);
      rank->schedule = train::CommandSchedule(saved->second.position);
      rank->history = saved->second.history;
    }
    Report(*rank, cluster::SessionStarted{.step = static_cast<uint64_t>(session_->step)});
  }
}

void CommandsSimulation::Boundary() {
  const std::vector<Rank*> all = Together();
  if (all.empty()) return;
  if (!session_.has_value()) return Begin(all);
  std::vector<train::RollCallRecord> table;
  for (const Rank* rank : all) {
    table.push_back(
        {.step = session_->step + 1, .newest_command = static_cast<int64_t>(rank->held.size())});
  }
  if (bug_ == Bug::kMinOfSome && table.size() > 1) table.pop_back();
  const auto plan = train::Decide(table);
  if (!plan.ok()) return Wrong(std::string(plan.status().message()));
  for (size_t i = all.size(); i-- > 0;) {
    Rank& rank = *all[i];
    rank.schedule.TakeIn(plan->apply_commands, session_->step, [&](int64_t number) {
      if (number <= static_cast<int64_t>(rank.held.size())) return rank.held[number - 1];
      Wrong(absl::StrCat("rank ", rank.id.rank, " does not hold command ", number));
      return train::Command();
    });
    while (const auto due = rank.schedule.Next(session_->step)) {
      if (!due->command.has_cancel()) {
        rank.history.emplace_back(session_->step, due->command.number());
      }
      if (i == 0) CarryOut(rank, *due);
      Tell("rank ", rank.id.rank, " after step ", session_->step, ": ", due->command.number(),
           due->command.replay() ? " again" : "", due->cancels ? ", cancels" : "");
    }
  }
  if (!session_->paused) ++session_->step;
  if (Pick(6) == 0) Save(*all[0]);
}

void CommandsSimulation::CarryOut(Rank& leader, const train::CommandSchedule::Due& due) {
  const uint64_t number = due.command.number();
  Report(leader, cluster::CommandApplied{number, static_cast<uint64_t>(session_->step)});
  const commands::Outcome refused{.code = absl::StatusCode::kCancelled};
  commands::Outcome outcome;
  // All other commands do nothing: the simulated session has no learning rate, no data and no
  // parameters, and no client asks for a stop.
  if (due.command.has_cancel() && due.cancels) {
    Report(leader, cluster::CommandFinished{due.command.cancel().target(), refused});
  } else if (due.command.has_cancel()) {
    outcome = refused;
  } else if (due.command.has_pause() || due.command.has_resume()) {
    session_->paused = due.command.has_pause();
  } else if (due.command.has_save_checkpoint()) {
    Save(leader);
  }
  Report(leader, cluster::CommandFinished{number, outcome});
}

void CommandsSimulation::Save(Rank& leader) {
  if (std::exchange(session_->saved_step, session_->step) == session_->step) return;
  const std::string path = absl::StrCat("step-", session_->step, "-g", job().generation);
  Tell("saves ", path, ", taken in ", leader.schedule.position().taken);
  disk_[path] = {session_->step, leader.schedule.position(), leader.history};
  Report(leader, cluster::CheckpointWritten{static_cast<uint64_t>(session_->step), path});
}

}  // namespace muster::simulation
