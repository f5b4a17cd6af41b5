// A session that goes on from a checkpoint reports again how the commands went which the checkpoint
// has taken in: the generation that carried them out may have ended before the coordinator heard of
// it. This finds what to report. Pure; the session and tests/simulation use it.
#ifndef MUSTER_WORKER_TRAIN_UNREPORTED_H_
#define MUSTER_WORKER_TRAIN_UNREPORTED_H_

#include <cstdint>
#include <map>
#include <vector>

#include "worker/train/command_schedule.h"

namespace muster::train {

struct Unreported {
  enum class What {
    // It took effect and is finished.
    kFinished,
    // It was cancelled before it took effect.
    kTakenBack,
    // It took effect. The coordinator has an end of it already, which may be wrong: it may have
    // ended the command with its job, before it found this checkpoint.
    kApplied,
  };
  int64_t number = 0;
  What what = What::kFinished;
  // Optimizer steps done when it took effect. Not of kTakenBack.
  int64_t step = 0;

  friend bool operator==(const Unreported&, const Unreported&) = default;
};

// By rising number, of the commands 1..newest that the checkpoint has. Left out are those that
// wait, and those which the coordinator knows to be in force or whose end it does not await any
// more (Command::replay, begun, IsDoneAnew). position: of the checkpoint; step: its own. steps:
// number -> step, of those that took effect, as far as the checkpoint tells them. For any other one
// the checkpoint's step counts.
std::vector<Unreported> FindUnreported(const CommandSchedule::Position& position, int64_t step,
                                       const std::map<int64_t, int64_t>& steps, int64_t newest,
                                       const CommandSchedule::Get& get);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_UNREPORTED_H_
