// What the ranks say to each other before each step, and what follows from it: a pure function of
// the table, the same on every rank. docs/roll-call.md describes the protocol.
#ifndef MUSTER_WORKER_TRAIN_ROLL_CALL_PLAN_H_
#define MUSTER_WORKER_TRAIN_ROLL_CALL_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/train/input_plan.h"
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
  // Where that is nothing: the first step to which it brought nothing; else 0.
  int64_t joined_since = 0;
  int64_t newest_command = 0;
  // Hash of what lies where, in the parts that the strategy has made of the parameters.
  int64_t layout = 0;
  // In force, before the schedule.
  double learning_rate = 0;
  // Which parameters are to be trained: a hash of all flags, and the index of the first one that
  // differs from the plan in force (-1: none).
  int64_t mask_hash = 0;
  int64_t first_change = -1;
  // This rank was told that the job is to save a checkpoint, to end here and to go on elsewhere.
  bool preempted = false;
  // The newest finished step whose loss is known (0: none), the weighted sum of its micro-batches'
  // mean losses on this rank, and the sum of the weights: of 1 each, with DivideBy::kSamples in
  // proportion to their terms.
  int64_t loss_step = 0;
  double loss_sum = 0;
  double loss_weight = 0;
  // What became of that step: an Outcome.
  int64_t loss_outcome = static_cast<int64_t>(Outcome::kApplied);
  // Of all collectives that this rank has begun before this call: how many, and a hash of their
  // names.
  int64_t collectives = 0;
  int64_t collectives_hash = 0;
};

struct StepLoss {
  int64_t step = 0;
  double mean = 0;  // not finite only where the step was skipped
};

// What the ranks do next; equal on all of them.
struct RollCallPlan {
  InputPlan inputs;
  // Commands up to this number are held by every rank: they apply now.
  int64_t apply_commands = 0;
  std::optional<StepLoss> loss;
  // Some rank was told so: all save a checkpoint at this boundary and end.
  bool preempted = false;
  // The ranks want different parameters to be trained, beyond the first one that they all change.
  // All ranks are at the same point, so that they can compare flag by flag; nothing else may be
  // done.
  bool masks_differ = false;
  // The ranks have called different collectives, of sizes that happened to be equal: what they
  // exchanged was mixed up. All ranks are at the same point; nothing but to say which may be done.
  bool collectives_differ = false;
};

struct DecideOptions {
  // Of the model's parameters, for errors.
  std::vector<std::string> names = {};
  UnevenInputs uneven_inputs = {};
  // PlanInputs' `full`.
  int64_t full_micro_batches = 1;
};

// Pure. The table is in rank order and not empty. Errors, equal on all ranks, naming them:
// FAILED_PRECONDITION  the ranks differ in generation, step, attempt, position, layout or learning
//                      rate, or in which parameters they want to be trained
// OUT_OF_RANGE         a loss, or a gradient, is not finite and the step was not to be skipped for
//                      it
absl::StatusOr<RollCallPlan> Decide(const std::vector<RollCallRecord>& table,
                                    const DecideOptions& options = {});

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLL_CALL_PLAN_H_
