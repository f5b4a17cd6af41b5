// The roll call: before each step every rank tells the others where it stands, and a pure function
// of the table says what the step will be. All ranks read the same table, so all decide alike
// without asking the coordinator. docs/roll-call.md describes the protocol.
//
// Normally the call for the next step is posted when a step begins and awaited when it ends
// (overlapped: no cost). After a boundary that did something (a command, a checkpoint, a validation
// pass, the start of a stage) the ranks hold a blocking call, attempt + 1, and only that one drives
// the step.
#ifndef MUSTER_WORKER_TRAIN_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_ROLL_CALL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/roll_call_plan.h"

namespace muster::train {

// Exchanges the records. One call is in flight at a time; used by one thread.
class RollCall {
 public:
  // The communicator must outlive it.
  explicit RollCall(comm::Communicator* communicator);
  ~RollCall();

  // For Decide.
  void Configure(DecideOptions options) { options_ = std::move(options); }

  void Post(const RollCallRecord& record);
  // The plan of the call that was posted. Errors: the communicator's, or Decide's.
  absl::StatusOr<RollCallPlan> Await();

 private:
  struct InFlight;
  comm::Communicator* const communicator_;
  DecideOptions options_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLL_CALL_H_
