// The roll call. Before each step every rank sends a record to all other ranks. A pure function of
// the table of records decides about the step. All ranks read the same table, so all ranks decide
// the same without asking the coordinator. docs/internals/roll-call.md describes the protocol.
//
// Normally a rank posts the call for the next step when a step begins, and awaits the call when the
// step ends. So the call overlaps with the step and costs no time. A boundary may do more: carry
// out a command, save a checkpoint, validate, start a stage. Then the ranks make a blocking call
// with the next attempt number, and only this call decides about the step.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/rollcall/roll_call_plan.h"

namespace muster::train {

// Exchanges the records. At most one call is in flight. Threading: one thread.
class RollCall {
 public:
  // The communicator must outlive this object. `options`: those of Decide.
  explicit RollCall(comm::Communicator* communicator, DecideOptions options = {});
  ~RollCall();

  void Post(const RollCallRecord& record);
  // Returns the plan of the posted call. Errors: the communicator's, or Decide's.
  absl::StatusOr<RollCallPlan> Await();

 private:
  struct InFlight;
  comm::Communicator* const communicator_;
  const DecideOptions options_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_
