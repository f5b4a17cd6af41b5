// The roll calls of a running session outside of its steps: at boundaries, and during long work,
// which asks in them whether it has to end early.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_CALLS_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_CALLS_H_

#include "absl/status/statusor.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/background.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::train {

// How work between two steps asks for a roll call.
class Caller {
 public:
  virtual ~Caller() = default;

  // A blocking roll call for the next step; a collective. Its success means that training may
  // continue from here, because the losses are finite on every rank. An error ends the session.
  virtual absl::StatusOr<RollCallPlan> CallNow() = 0;
};

// Threading: the session's thread. All methods are collectives.
class Calls : public Caller {
 public:
  // All outlive it.
  struct Parts {
    SessionRollCall* roll_call;
    const Background* background;
    const CommandSource* commands;
    const CommandSchedule* schedule;
    const SessionState* session_state;
    bool has_checkpoints;
  };
  explicit Calls(const Parts& parts) : parts_(parts) {}

  // If a task of the background has failed, this returns its error and makes no call.
  absl::StatusOr<RollCallPlan> CallNow() override;
  // Whether the job is to leave its nodes, or to stop.
  absl::StatusOr<bool> AskedToEnd();
  // The same for a pass of evaluation, which goes on in a job without checkpoints that is to leave
  // its nodes: such a job begins anew, and the pass may be all that is left.
  absl::StatusOr<bool> PassMustEnd();

 private:
  bool StopsNow(const RollCallPlan& plan) const;

  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_CALLS_H_
