#include "coordinator/jobs/life_row.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

// Returns the row's phase; absent if no life has this row.
std::optional<Phase> PhaseOf(const LifeRow& row) {
  using Outcome = life::Ended::Outcome;
  const life::Alive& alive = row;
  const bool at_work = row.live && !row.ending && !row.stop_requested;
  const auto ended = [&](Outcome outcome) -> std::optional<Phase> {
    if (row.live) return std::nullopt;
    return life::Ended{outcome, row.end_time, row.time_up};
  };
  switch (row.state) {
    case State::kQueued:
      if (row.live) return std::nullopt;
      return life::Queued();
    case State::kStarting:
      if (!at_work) return std::nullopt;
      return life::Starting{alive, row.paused};
    case State::kRunning:
      if (!at_work) return std::nullopt;
      return life::Running{alive};
    case State::kPaused:
      if (at_work) return life::Paused{alive};
      if (row.live || row.halt_reason.empty()) return std::nullopt;
      return life::Paused{life::Halted{row.halt_reason}};
    case State::kRecovering:
      if (!row.live) return life::Recovering{life::Waiting{row.not_before}, row.paused};
      if (!row.ending || row.stop_requested) return std::nullopt;
      return life::Recovering{life::Ending{alive}, row.paused};
    case State::kStopping: {
      if (!row.live || !row.stop_requested) return std::nullopt;
      using Why = life::Stopping::Why;
      life::Stopping stopping{alive, row.time_up ? Why::kTimeIsUp : Why::kAsked};
      if (row.ending) stopping.told = absl::InfinitePast();
      stopping.paused = row.paused;
      return stopping;
    }
    case State::kSucceeded:
      return ended(Outcome::kSucceeded);
    case State::kFailed:
      return ended(Outcome::kFailed);
    case State::kCancelled:
      return ended(Outcome::kCancelled);
  }
  return std::nullopt;
}

}  // namespace

LifeRow RowOf(const JobLife& life) {
  LifeRow row;
  static_cast<JobFacts&>(row) = life;
  row.state = life.state();
  row.end_time = life.end_time();
  row.ending = life.ending();
  row.stop_requested = life.stop_requested();
  row.time_up = life.time_up();
  row.paused = PausedByCommand(life.phase);
  row.not_before = life.not_before();
  if (life.halted()) {
    row.halt_reason = std::get<life::Halted>(std::get<life::Paused>(life.phase).how).reason;
  }
  if (const life::Alive* alive = life.alive(); alive != nullptr) {
    row.live = true;
    static_cast<life::Alive&>(row) = *alive;
    row.end_deadline = life::Alive().end_deadline;
  }
  return row;
}

absl::StatusOr<JobLife> LifeOf(const LifeRow& row) {
  std::optional<Phase> phase = PhaseOf(row);
  if (!phase.has_value()) {
    return absl::DataLossError(absl::StrCat(
        "no job can be ", Name(row.state), row.live ? " with" : " without", " processes",
        row.ending ? " that end" : "", row.stop_requested ? " after a stop" : "",
        row.halt_reason.empty() ? "" : absl::StrCat(", halted: ", row.halt_reason)));
  }
  JobLife life;
  static_cast<JobFacts&>(life) = row;
  life.phase = *std::move(phase);
  return life;
}

}  // namespace muster::jobs
