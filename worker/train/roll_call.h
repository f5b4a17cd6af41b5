// The roll call: before each step every rank tells the others where it stands, and a pure function of
// the table says what the step will be. All ranks read the same table, so all decide alike without
// asking the coordinator. docs/roll-call.md describes the protocol.
//
// Normally the call for the next step is posted when a step begins and awaited when it ends
// (overlapped: no cost). After a boundary that did something (a command, a checkpoint, a validation pass,
// the start of a stage) the ranks hold a blocking call, attempt + 1, and only that one drives the
// step.
#ifndef MUSTER_WORKER_TRAIN_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_ROLL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/outcome.h"

namespace muster::train {

// What one rank says. Everything is an int64 or a float64 on the wire.
struct RollCallRecord {
  int64_t generation = 0;
  // The step that the table decides about: optimizer steps that will be done after it.
  int64_t step = 0;
  int64_t attempt = 0;
  // The sampler's position before that step, and what this rank will bring to it.
  int64_t epoch = 0;
  int64_t cursor = 0;
  int64_t micro_batches = 0;
  int64_t samples = 0;
  int64_t newest_command = 0;
  // Hash of what all ranks must agree on: parameters, buckets, optimizer, stages.
  int64_t plan_fingerprint = 0;
  // The newest finished step whose loss is known (0: none), the sum of its micro-batches' mean losses on
  // this rank, and their number.
  int64_t loss_step = 0;
  double loss_sum = 0;
  int64_t loss_micro_batches = 0;
  // What became of that step: an Outcome.
  int64_t loss_outcome = static_cast<int64_t>(Outcome::kApplied);
};

struct StepLoss {
  int64_t step = 0;
  double mean = 0;  // not finite only where the step was skipped
};

// What the ranks do next; equal on all of them.
struct RollCallPlan {
  // Divides the sum of all gradients: the micro-batches that all ranks bring together.
  double divisor = 1;
  // Samples of all ranks in the step.
  int64_t samples = 0;
  // Commands up to this number are held by every rank: they apply now.
  int64_t apply_commands = 0;
  std::optional<StepLoss> loss;
};

// Pure. The table is in rank order and not empty. Errors, equal on all ranks, naming them:
// FAILED_PRECONDITION  the ranks differ in generation, step, attempt, position or plan
// OUT_OF_RANGE         a loss, or a gradient, is not finite and the step was not to be skipped for it
absl::StatusOr<RollCallPlan> Decide(const std::vector<RollCallRecord>& table);

// Exchanges the records. One call is in flight at a time; used by one thread.
class RollCall {
 public:
  // The communicator must outlive it.
  explicit RollCall(comm::Communicator* communicator);
  ~RollCall();

  void Post(const RollCallRecord& record);
  // The plan of the call that was posted. Errors: the communicator's, or Decide's.
  absl::StatusOr<RollCallPlan> Await();

 private:
  struct InFlight;
  comm::Communicator* const communicator_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLL_CALL_H_
