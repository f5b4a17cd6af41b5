#include "tests/simulation/training_session.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"
#include "tests/simulation/start.h"
#include "worker/train/rollcall/roll_call_plan.h"

namespace muster::simulation {

TrainingSession::TrainingSession(Scene* scene, const std::string& job, uint64_t generation)
    : scene_(*scene),
      job_(job),
      generation_(generation),
      settings_(scene->jobs.at(job)),
      ranks_(settings_.world_size) {}

void TrainingSession::Later(absl::Duration delay, void (TrainingSession::*what)()) {
  scene_.timeline.After(delay, [this, what] {
    if (!over_) (this->*what)();
  });
}

std::string TrainingSession::Name(int64_t step) const {
  return absl::StrCat(job_, "/step-", step, "-g", generation_);
}

// ---- The ranks.

void TrainingSession::Join(WorkerProcess* rank) {
  ranks_[rank->id().rank] = rank;
  if (over_) return Lost(nullptr, false);
  const bool complete =
      std::all_of(ranks_.begin(), ranks_.end(), [](const auto* one) { return one != nullptr; });
  if (complete) Later(scene_.timeline.Between(0.05, 0.5), &TrainingSession::Begin);
}

bool TrainingSession::Together() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto* one) { return one->responds(); });
}

// Each rank checks its lease before it begins a step.
bool TrainingSession::StillOurs() {
  return std::all_of(ranks_.begin(), ranks_.end(), [](auto* one) { return one->StillMine(); });
}

void TrainingSession::Lost(WorkerProcess* rank, bool vanished) {
  over_ = true;
  // The other ranks wait for the lost rank until they are notified, or their collective times out.
  if (vanished) return;
  for (WorkerProcess* other : ranks_) {
    if (other == nullptr || other == rank || !other->alive()) continue;
    scene_.timeline.After(scene_.timeline.Between(0.01, 0.5), [this, other] {
      if (!other->ending()) {
        other->Fail({.step = static_cast<uint64_t>(training_.step),
                     .reason = "connection closed by peer",
                     .consequence = true});
      }
    });
  }
}

void TrainingSession::Fail(const jobs::ReportedFailure& failure) {
  over_ = true;
  // All ranks report what all of them know: the first report that arrives ends the others.
  for (WorkerProcess* rank : ranks_) {
    const bool says_it = rank == &leader() || failure.checkpoints_unreadable;
    rank->Fail(says_it ? failure
                       : jobs::ReportedFailure{.reason = failure.reason, .consequence = true});
  }
}

// ---- Steps.

void TrainingSession::Begin() {
  if (!Together()) return Later(absl::Milliseconds(200), &TrainingSession::Begin);
  const Start start =
      FindStart(&scene_.disk, leader().id(), leader().checkpoints(), leader().known_checkpoints());
  if (!start.missing.empty() && !scene_.checker.WasRestored(job_)) {
    return scene_.timeline.Wrong("checkpoint ", start.missing, " cannot be read");
  }
  if (start.failure.has_value()) {
    // A failure of the job, if the job had no files in the folder yet.
    const bool own = !start.failure->checkpoints_unreadable && start.failure->newer_generation == 0;
    if (own) scene_.checker.Struck(job_, generation_);
    return Fail(*start.failure);
  }
  train::CommandSchedule::Position position;
  if (!start.path.empty()) {
    const SavedCheckpoint& saved = scene_.disk.checkpoints.at(start.path);
    training_ = saved.training;
    position = saved.position;
    saved_step_ = training_.step;
  }
  if (!start.found.found.empty()) leader().Report(start.found);
  scene_.timeline.Tell(job_, " generation ", generation_, " begins at step ", training_.step);
  schedules_.assign(ranks_.size(), train::CommandSchedule(position));
  for (WorkerProcess* rank : ranks_) {
    rank->Moved(training_.step);
    rank->Report(cluster::SessionStarted{.step = static_cast<uint64_t>(training_.step),
                                         .checkpoint_path = start.path,
                                         .last_command = static_cast<uint64_t>(position.taken)});
  }
  TellUnreported(position);
  Boundary();
}

void TrainingSession::TellUnreported(const train::CommandSchedule::Position& position) {
  const std::vector<train::Command>& held = leader().held();
  std::map<int64_t, int64_t> steps;
  for (const auto& [step, number] : training_.commands) steps.emplace(number, step);
  using What = train::Unreported::What;
  for (const auto& [number, what, step] :
       train::FindUnreported(position, training_.step, steps, held.size(),
                             [&](int64_t number) { return held[number - 1]; })) {
    const uint64_t wire_number = number;
    if (what != What::kCancelled) {
      leader().Report(cluster::CommandApplied{wire_number, static_cast<uint64_t>(step)});
    }
    if (what == What::kApplied) continue;
    commands::Outcome outcome;
    if (what == What::kCancelled) {
      outcome = {.code = absl::StatusCode::kCancelled, .reason = "OPERATION_CANCELLED"};
    }
    leader().Report(cluster::CommandFinished{wire_number, outcome});
  }
}

void TrainingSession::Boundary() {
  // All ranks wait for a rank that is stopped or whose lease is over. A rank whose lease is over
  // ends by itself.
  if (!Together() || !StillOurs()) {
    return Later(absl::Milliseconds(200), &TrainingSession::Boundary);
  }
  for (WorkerProcess* rank : ranks_) rank->Moved(training_.step);
  if (!ApplyCommands()) return;
  if (paused_) return Later(absl::Milliseconds(200), &TrainingSession::Boundary);
  if (training_.step >= settings_.total_steps) {
    last_step_done_ = true;
    StartSave(0);
    return EndWhenSaved();
  }
  Later(settings_.step_time, &TrainingSession::Step);
}

void TrainingSession::Step() {
  if (!Together()) return Later(absl::Milliseconds(200), &TrainingSession::Step);
  training_.DoStep();
  leader().Report(cluster::StepDone{.step = static_cast<uint64_t>(training_.step),
                                    .metrics = training_.metrics()});
  if (training_.step % settings_.save_every == 0) StartSave(0);
  Boundary();
}

// ---- Commands.

bool TrainingSession::ApplyCommands() {
  std::vector<train::RollCallRecord> table;
  for (const WorkerProcess* rank : ranks_) {
    table.push_back({.step = training_.step + 1,
                     .newest_command = static_cast<int64_t>(rank->held().size()),
                     .preempted = rank->preempted()});
  }
  const auto plan = train::Decide(table);
  if (!plan.ok()) {
    scene_.timeline.Wrong("roll call: ", plan.status().message());
    return false;
  }
  if (plan->preempted) {
    preempted_ = last_step_done_ = true;
    StartSave(0);
    EndWhenSaved();
    return false;
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    schedules_[i].TakeIn(plan->apply_commands, training_.step,
                         [&](int64_t number) { return ranks_[i]->held()[number - 1]; });
  }
  // Commands are carried out one by one: commands that wait behind a save are not in its
  // checkpoint.
  while (true) {
    const auto due = schedules_[0].Next(training_.step);
    for (size_t i = 1; i < ranks_.size(); ++i) {
      const auto other = schedules_[i].Next(training_.step);
      const bool alike = due.has_value() == other.has_value() &&
                         (!due.has_value() || (due->command.number() == other->command.number() &&
                                               due->cancels == other->cancels));
      if (!alike) {
        scene_.timeline.Wrong("ranks 0 and ", i, " of job ", job_, " carry out other commands");
      }
    }
    if (!due.has_value()) return true;
    Apply(*due);
    if (last_step_done_) return false;
  }
}

void TrainingSession::Finish(int64_t command, const commands::Outcome& outcome) {
  leader().Report(cluster::CommandApplied{static_cast<uint64_t>(command),
                                          static_cast<uint64_t>(training_.step)});
  leader().Report(cluster::CommandFinished{static_cast<uint64_t>(command), outcome});
}

void TrainingSession::Apply(const train::CommandSchedule::Due& due) {
  const train::Command& command = due.command;
  scene_.timeline.Tell(job_, " after step ", training_.step, ": command ", command.number(),
                       command.replay() ? " again" : "", due.cancels ? ", cancels" : "");
  const commands::Outcome refused{.code = absl::StatusCode::kCancelled,
                                  .reason = "OPERATION_CANCELLED"};
  const auto number = static_cast<int64_t>(command.number());
  if (command.has_cancel()) {
    if (due.cancels) {
      leader().Report(cluster::CommandFinished{command.cancel().target(), refused});
    }
    return Finish(number, due.cancels ? commands::Outcome{} : refused);
  }
  training_.commands.emplace_back(training_.step, number);
  if (command.has_stop()) {
    leader().Report(
        cluster::CommandApplied{command.number(), static_cast<uint64_t>(training_.step)});
    last_step_done_ = true;
    StartSave(0);
    EndWhenSaved();
  } else if (command.has_save_checkpoint()) {
    leader().Report(
        cluster::CommandApplied{command.number(), static_cast<uint64_t>(training_.step)});
    StartSave(number);
  } else {
    // A command that changes state changes the parameters after each later step.
    if (commands::ChangesState(commands::KindOf(command))) {
      training_.learning_rate = number;
      training_.rates.emplace_back(training_.step, number);
    }
    if (command.has_pause() || command.has_resume()) paused_ = command.has_pause();
    Finish(number);
  }
}

// ---- Checkpoints.

void TrainingSession::StartSave(int64_t command) {
  const bool saved = std::exchange(saved_step_, training_.step) == training_.step;
  if (saved && command == 0) return;
  saves_.push_back(
      {.what = {job_, generation_, training_, schedules_[0].position()}, .command = command});
  if (saves_.size() == 1) WriteNext();
}

void TrainingSession::WriteNext() {
  scene_.disk.temporary.insert(absl::StrCat(Name(saves_.front().what.training.step), ".tmp"));
  Later(scene_.timeline.Between(0.02, 2), &TrainingSession::Written);
}

void TrainingSession::Written() {
  // Each rank writes its part, and rank 0 renames the checkpoint if its lease holds.
  if (!Together() || !leader().StillMine()) {
    return Later(absl::Milliseconds(200), &TrainingSession::Written);
  }
  if (const auto stale = StaleEpoch(scene_.disk, leader().id()); stale.has_value()) {
    return Fail(*stale);
  }
  // All earlier reports are acknowledged, or on the agent's disk, before another generation can
  // continue from the checkpoint.
  const absl::Time now = scene_.timeline.now();
  settle_until_ = settle_until_.value_or(now + absl::Seconds(1));
  const bool answered_late = now >= *settle_until_ - absl::Milliseconds(800);
  if (!leader().Settled(answered_late) && now < *settle_until_) {
    return Later(absl::Milliseconds(20), &TrainingSession::Written);
  }
  settle_until_.reset();
  const Save save = std::move(saves_.front());
  saves_.pop_front();
  const std::string path = Name(save.what.training.step);
  scene_.disk.temporary.erase(path + ".tmp");
  const auto step = static_cast<uint64_t>(save.what.training.step);
  commands::Outcome outcome;
  if (scene_.disk.full || scene_.disk.gone) {
    scene_.checker.DiskFailed();
    leader().Report(cluster::CheckpointFailed{step, "no space left on device"});
    outcome.code = absl::StatusCode::kResourceExhausted;
  } else if (!scene_.disk.checkpoints.contains(path)) {
    scene_.timeline.Tell("writes ", path);
    scene_.disk.checkpoints[path] = save.what;
    leader().Report(cluster::CheckpointWritten{step, path});
  }
  if (save.command != 0) {
    leader().Report(cluster::CommandFinished{static_cast<uint64_t>(save.command), outcome});
  }
  if (!saves_.empty()) WriteNext();
}

void TrainingSession::EndWhenSaved() {
  if (!saves_.empty() || !Together()) {
    return Later(absl::Milliseconds(50), &TrainingSession::EndWhenSaved);
  }
  over_ = true;
  scene_.checker.SessionEnds(job_, training_);
  for (WorkerProcess* rank : ranks_) rank->Finish(training_.step, preempted_);
}

}  // namespace muster::simulation
