// The end of a run: when no more faults happen, every request comes to its end, and is checked.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"
#include "tests/simulation/commands_simulation.h"

namespace muster::simulation {

void CommandsSimulation::WaitASecond() {
  world_.seconds += 1;
  core().AgentHeard(agent_session_, world_.now());
  core().Handle(cluster::TimePassed{}, world_.now());
  Commit();
}

void CommandsSimulation::Peace() {
  for (Ask& ask : asks_) {
    if (ask.answers.empty() && bug_ != Bug::kLostRequestIds) {
      // A client repeats a call until the call is answered.
      const cluster::CommandRequest request{.job_id = kJob,
                                            .request_id = ask.request_id,
                                            .fingerprint = ask.request_id,
                                            .command = ask.command};
      const auto number = ask.command.kind == v1::Operation::CANCEL
                              ? core().Cancel(request, world_.now())
                              : core().Command(request, world_.now());
      Commit();
      if (number.ok()) ask.answers.insert(*number);
    }
  }
  Store();
  for (int round = 0; round < 400 && wrong_.empty(); ++round) {
    for (int move = 0; move < 120 && !ranks_.empty(); ++move) Move(AnyRank());
    StopWhatWasToStop();
    if (!job().live()) WaitASecond();
    // A paused job finishes what it has begun; the operator need not resume it.
    if (job().commands.WillBePaused() && !HasUnfinished()) {
      (void)core().Command(
          {.job_id = kJob, .command = {.kind = v1::Operation::RESUME, .contents = "peace"}},
          world_.now());
      Commit();
    }
    Boundary();
    if (AllOver()) return;
  }
  Wrong("what was asked never came to its end");
}

bool CommandsSimulation::HasUnfinished() {
  const auto& commands = job().commands.commands();
  return std::any_of(commands.begin(), commands.end(), [](const commands::Command& command) {
    return command.kind == v1::Operation::SAVE_CHECKPOINT && command.applied_step.has_value() &&
           !command.outcome.has_value();
  });
}

bool CommandsSimulation::AllOver() {
  if (!session_.has_value()) return false;
  for (const commands::Command& command : job().commands.commands()) {
    if (!command.outcome.has_value()) return false;
    // A rollback undid the command, and its step was not reached again.
    if (command.applied_step >= static_cast<uint64_t>(session_->step)) return false;
  }
  for (const Rank& rank : ranks_) {
    if (!rank.unacked.empty() || !rank.coming.empty()) return false;
  }
  return true;
}

void CommandsSimulation::Check() {
  const std::vector<Rank*> all = Together();
  for (const Rank* rank : all) {
    if (rank->history != all[0]->history) {
      return Wrong(absl::StrCat("ranks 0 and ", rank->id.rank, " have other histories"));
    }
  }
  std::map<int64_t, std::vector<int64_t>> steps;  // by command
  for (const auto& [step, number] : all[0]->history) steps[number].push_back(step);
  std::map<std::string, int> by_request;
  for (const commands::Command& command : job().commands.commands()) {
    const auto& done = steps[static_cast<int64_t>(command.number)];
    if (command.contents != "peace") ++by_request[command.contents];
    if (command.kind == v1::Operation::CANCEL) continue;
    if (command.outcome->code != absl::StatusCode::kOk) {
      if (!done.empty()) {
        Wrong(absl::StrCat("command ", command.number, " was taken back and done"));
      }
      continue;
    }
    if (!commands::ChangesState(command.kind))
      continue;  // done once and over, or in force again after a rollback
    if (done.size() != 1) {
      Wrong(absl::StrCat("command ", command.number, " took effect ", done.size(), " times"));
    } else if (static_cast<uint64_t>(done[0]) != command.applied_step) {
      Wrong(absl::StrCat("command ", command.number, " took effect after step ", done[0],
                         ", acknowledged is ", *command.applied_step));
    }
  }
  for (const auto& [request, count] : by_request) {
    if (count != 1) Wrong(absl::StrCat(request, " made ", count, " commands"));
  }
  for (const Ask& ask : asks_) {
    if (ask.answers.size() > 1) Wrong(absl::StrCat(ask.request_id, " had several answers"));
    for (const uint64_t number : ask.answers) {
      const commands::Command* command = job().commands.Find(number);
      const bool there = command != nullptr && (ask.command.kind == v1::Operation::CANCEL ||
                                                command->contents == ask.request_id);
      if (!there) Wrong(absl::StrCat("the command of ", ask.request_id, " is lost"));
    }
  }
}

}  // namespace muster::simulation
