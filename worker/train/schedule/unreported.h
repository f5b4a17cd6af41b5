// A session that starts from a checkpoint reports again how the commands ended that the checkpoint
// includes, because the generation that carried them out may have ended before the coordinator
// heard of it. FindUnreported finds what to report. Pure; used by the session and tests/simulation.
#ifndef MUSTER_WORKER_TRAIN_SCHEDULE_UNREPORTED_H_
#define MUSTER_WORKER_TRAIN_SCHEDULE_UNREPORTED_H_

#include <cstdint>
#include <map>
#include <vector>

#include "worker/train/schedule/command_schedule.h"

namespace muster::train {

struct Unreported {
  enum class What {
    // It took effect and is finished.
    kFinished,
    // It was cancelled before it took effect.
    kCancelled,
    // It took effect. The coordinator already has an end of it, which may be wrong: the coordinator
    // may have ended the command with its job, before it found this checkpoint.
    kApplied,
  };
  int64_t number = 0;
  What what = What::kFinished;
  // Optimizer steps done when it took effect; not set for kCancelled.
  int64_t step = 0;

  friend bool operator==(const Unreported&, const Unreported&) = default;
};

// By increasing number, of the commands 1..newest that the checkpoint includes. Left out are
// commands that wait, commands that the coordinator knows to be in force, and commands whose end it
// no longer awaits (Command::replay, begun, IsDoneOnce). `position` and `step` are those of the
// checkpoint. `steps` maps the number of a command to the step at which it took effect, as far as
// the checkpoint says so. For other commands the step of the checkpoint is reported.
std::vector<Unreported> FindUnreported(const CommandSchedule::Position& position, int64_t step,
                                       const std::map<int64_t, int64_t>& steps, int64_t newest,
                                       const CommandSchedule::Get& get);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SCHEDULE_UNREPORTED_H_
