// How work between two steps asks for a roll call.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_CALLER_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_CALLER_H_

#include "absl/status/statusor.h"
#include "worker/train/rollcall/roll_call_plan.h"

namespace muster::train {

class Caller {
 public:
  virtual ~Caller() = default;

  // A blocking roll call for the next step; a collective. Its success means that training may
  // continue from here, because the losses are finite on every rank. An error ends the session.
  virtual absl::StatusOr<RollCallPlan> CallNow() = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_CALLER_H_
