// The roll call: before each step every rank sends its record to the others, and a pure function of
// the table decides what the step will be. All ranks read the same table, so all decide the same
// without asking the coordinator. docs/internals/roll-call.md describes the protocol.
//
// Normally the call for the next step is posted when a step begins and awaited when it ends, so it
// overlaps with the step and costs no time. After a boundary at which something was done (a
// command, a checkpoint, a validation pass, the start of a stage) the ranks make a blocking call
// with the next attempt number, and only that call decides about the step.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/rollcall/roll_call_plan.h"

namespace muster::train {

// Exchanges the records. One call is in flight at a time; used by one thread.
class RollCall {
 public:
  // The communicator must outlive it. `options`: of Decide.
  explicit RollCall(comm::Communicator* communicator, DecideOptions options = {});
  ~RollCall();

  void Post(const RollCallRecord& record);
  // The plan of the call that was posted. Errors: the communicator's, or Decide's.
  absl::StatusOr<RollCallPlan> Await();

 private:
  struct InFlight;
  comm::Communicator* const communicator_;
  const DecideOptions options_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_H_
