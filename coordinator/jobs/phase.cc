#include "coordinator/jobs/phase.h"

#include <utility>

#include "common/overloaded/overloaded.h"

namespace muster::jobs {

const char* Name(State state) {
  switch (state) {
    case State::kQueued:
      return "QUEUED";
    case State::kStarting:
      return "STARTING";
    case State::kRunning:
      return "RUNNING";
    case State::kRecovering:
      return "RECOVERING";
    case State::kStopping:
      return "STOPPING";
    case State::kSucceeded:
      return "SUCCEEDED";
    case State::kFailed:
      return "FAILED";
    case State::kCancelled:
      return "CANCELLED";
    case State::kPaused:
      return "PAUSED";
  }
  return "UNKNOWN";
}

State StateOf(const Phase& phase) {
  using Outcome = life::Ended::Outcome;
  return std::visit(Overloaded{
                        [](const life::Queued&) { return State::kQueued; },
                        [](const life::Starting&) { return State::kStarting; },
                        [](const life::Running&) { return State::kRunning; },
                        [](const life::Paused&) { return State::kPaused; },
                        [](const life::Recovering&) { return State::kRecovering; },
                        [](const life::Stopping&) { return State::kStopping; },
                        [](const life::Ended& ended) {
                          if (ended.outcome == Outcome::kSucceeded) return State::kSucceeded;
                          return ended.outcome == Outcome::kFailed ? State::kFailed
                                                                   : State::kCancelled;
                        },
                    },
                    phase);
}

const life::Alive* AliveIn(const Phase& phase) {
  using Result = const life::Alive*;
  return std::visit(
      Overloaded{
          [](const life::Starting& starting) -> Result { return &starting.alive; },
          [](const life::Running& running) -> Result { return &running.alive; },
          [](const life::Paused& paused) -> Result {
            return std::get_if<life::Alive>(&paused.how);
          },
          [](const life::Recovering& recovering) -> Result {
            const auto* ending = std::get_if<life::Ending>(&recovering.how);
            return ending == nullptr ? nullptr : &ending->alive;
          },
          [](const life::Stopping& stopping) -> Result { return &stopping.alive; },
          [](const OneOf<life::Queued, life::Ended> auto&) -> Result { return nullptr; },
      },
      phase);
}

life::Alive* AliveIn(Phase* phase) { return const_cast<life::Alive*>(AliveIn(*phase)); }

std::optional<absl::Time> ToldToEnd(const Phase& phase) {
  if (const auto* stopping = std::get_if<life::Stopping>(&phase)) return stopping->told;
  const auto* recovering = std::get_if<life::Recovering>(&phase);
  const auto* ending =
      recovering == nullptr ? nullptr : std::get_if<life::Ending>(&recovering->how);
  return ending == nullptr ? std::nullopt : std::optional(ending->told);
}

bool Waits(const Phase& phase) {
  return std::visit(Overloaded{
                        [](const life::Queued&) { return true; },
                        [](const life::Recovering& recovering) {
                          return std::holds_alternative<life::Waiting>(recovering.how);
                        },
                        [](const OneOf<life::Starting, life::Running, life::Paused, life::Stopping,
                                       life::Ended> auto&) { return false; },
                    },
                    phase);
}

bool PausedByCommand(const Phase& phase) {
  return std::visit(
      Overloaded{
          [](const life::Starting& starting) { return starting.paused; },
          [](const life::Paused& paused) {
            return std::holds_alternative<life::Alive>(paused.how);
          },
          [](const life::Recovering& recovering) { return recovering.paused; },
          [](const life::Stopping& stopping) { return stopping.paused; },
          [](const OneOf<life::Queued, life::Running, life::Ended> auto&) { return false; },
      },
      phase);
}

void BeginToEnd(Phase* phase, absl::Time told) {
  if (auto* stopping = std::get_if<life::Stopping>(phase)) {
    stopping->told = told;
    return;
  }
  const bool paused = PausedByCommand(*phase);
  life::Alive alive = std::move(*AliveIn(phase));
  *phase = life::Recovering{life::Ending{std::move(alive), told}, paused};
}

void BeginStop(Phase* phase, life::Stopping::Why why) {
  const std::optional<absl::Time> told = ToldToEnd(*phase);
  const bool paused = PausedByCommand(*phase);
  life::Alive alive = std::move(*AliveIn(phase));
  *phase = life::Stopping{std::move(alive), why, told, paused};
}

void SettleWork(Phase* phase, bool all_started) {
  const bool paused = PausedByCommand(*phase);
  life::Alive alive = std::move(*AliveIn(phase));
  if (!all_started) {
    *phase = life::Starting{std::move(alive), paused};
  } else if (paused) {
    *phase = life::Paused{std::move(alive)};
  } else {
    *phase = life::Running{std::move(alive)};
  }
}

void SetPaused(Phase* phase, bool paused) {
  if (AliveIn(*phase) == nullptr) return;
  if (auto* starting = std::get_if<life::Starting>(phase)) {
    starting->paused = paused;
  } else if (auto* recovering = std::get_if<life::Recovering>(phase)) {
    recovering->paused = paused;
  } else if (auto* stopping = std::get_if<life::Stopping>(phase)) {
    stopping->paused = paused;
  } else {
    life::Alive alive = std::move(*AliveIn(phase));
    *phase = life::Starting{std::move(alive), paused};
    SettleWork(phase, true);
  }
}

}  // namespace muster::jobs
