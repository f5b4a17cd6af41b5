// The records that the ranks send each other before each step, and the plan that follows from them.
// The plan is a pure function of the table of records, so every rank has the same plan.
// docs/internals/roll-call.md describes the protocol.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_PLAN_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/train/job/input_plan.h"
#include "worker/train/step/step_result.h"

namespace muster::train {

// The newest step of a rank whose loss is known.
struct RankLoss {
  int64_t step = 0;  // 0: there is none
  // `sum`: the weighted sum of the mean losses of this rank's micro-batches. `weight`: the sum of
  // the weights. Each weight is 1; with DivideBy::kSamples it is in proportion to the loss terms.
  double sum = 0;
  double weight = 0;
  // A StepOutcome: how the step ended.
  int64_t outcome = static_cast<int64_t>(StepOutcome::kApplied);
};

struct BegunCollectives {
  int64_t count = 0;
  int64_t hash = 0;  // a hash of the collectives' names
  friend bool operator==(const BegunCollectives&, const BegunCollectives&) = default;
};

// The record of one rank. Every field is an int64 or a float64 on the wire. Only the fields that
// ForEachField (roll_call.cc) lists are sent.
struct RollCallRecord {
  int64_t generation = 0;
  // The step about which the table decides: the number of optimizer steps done after that step.
  int64_t step = 0;
  int64_t attempt = 0;
  // The sampler's position before that step, and this rank's input in the step.
  int64_t epoch = 0;
  int64_t cursor = 0;
  RankInput input = {};
  int64_t newest_command = 0;
  // A hash of the strategy's layout: which elements of which parameters lie where.
  int64_t layout = 0;
  // The current learning rate, before the schedule.
  double learning_rate = 0;
  // The parameters that this rank wants to be trained: a hash of all flags, and the index of the
  // first flag that differs from the current plan (-1: none).
  int64_t mask_hash = 0;
  int64_t first_change = -1;
  // This rank was told that the job should save a checkpoint, end here and continue on other nodes.
  bool preempted = false;
  RankLoss loss = {};
  // This rank knows a trainable parameter that no rank used in a step, and that no notice has named
  // (UnusedParameters).
  bool unused_news = false;
  // The collectives that this rank has begun before this call.
  BegunCollectives collectives = {};
};

struct StepLoss {
  int64_t step = 0;
  double mean = 0;  // not finite only if the step was skipped
};

// The next actions of the ranks; equal on all ranks.
struct RollCallPlan {
  InputPlan inputs;
  // The commands up to this number, which every rank holds, are applied now.
  int64_t apply_commands = 0;
  std::optional<StepLoss> loss;
  // Some rank knows a parameter that no rank used. The ranks exchange which parameters these are.
  bool unused_news = false;
  // Some rank is preempted: all ranks save a checkpoint at this boundary and end.
  bool preempted = false;
  // The ranks want different parameters to be trained, but the first parameter that they change is
  // the same. All ranks are at the same point of the program and can compare all flags. They do
  // nothing else.
  bool masks_differ = false;
  // The ranks have called different collectives that happened to have equal sizes, so the ranks
  // have exchanged wrong data. All ranks are at the same point of the program. They only find out
  // which collectives differ.
  bool collectives_differ = false;
};

struct DecideOptions {
  // The names of the model's parameters, for errors.
  std::vector<std::string> names = {};
  UnevenInputs uneven_inputs = {};
  // The parameter `full` of PlanInputs.
  int64_t full_micro_batches = 1;
};

// Pure. The table is in rank order and not empty. Errors are equal on all ranks and name the ranks:
// FAILED_PRECONDITION the ranks differ in generation, step, attempt, position, layout or learning
//                      rate, or in which parameters they want to be trained
// OUT_OF_RANGE         a loss or a gradient is not finite, and on_nan does not skip such steps
absl::StatusOr<RollCallPlan> Decide(const std::vector<RollCallRecord>& table,
                                    const DecideOptions& options = {});

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_ROLL_CALL_PLAN_H_
