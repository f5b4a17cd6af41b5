// What the ranks send each other before each step, and what follows from it: a pure function of the
// table, with the same result on every rank. docs/internals/roll-call.md describes the protocol.
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

// The newest finished step of a rank whose loss is known.
struct RankLoss {
  int64_t step = 0;  // 0: there is none
  // The weighted sum of its micro-batches' mean losses on this rank, and the sum of the weights: of
  // 1 each, with DivideBy::kSamples in proportion to their terms.
  double sum = 0;
  double weight = 0;
  // How that step ended: a StepOutcome.
  int64_t outcome = static_cast<int64_t>(StepOutcome::kApplied);
};

struct BegunCollectives {
  int64_t count = 0;
  int64_t hash = 0;  // of their names
  friend bool operator==(const BegunCollectives&, const BegunCollectives&) = default;
};

// The record of one rank. Every field is an int64 or a float64 on the wire; only those that
// ForEachField (roll_call.cc) lists are sent.
struct RollCallRecord {
  int64_t generation = 0;
  // The step that the table decides about: optimizer steps that will be done after it.
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
  // Which parameters this rank wants to be trained: a hash of all flags, and the index of the first
  // flag that differs from the current plan (-1: none).
  int64_t mask_hash = 0;
  int64_t first_change = -1;
  // This rank was told that the job should save a checkpoint, end here and continue on other nodes.
  bool preempted = false;
  RankLoss loss = {};
  // This rank knows of a trainable parameter that no rank used in a step, and no notice has told so
  // (UnusedParameters).
  bool unused_news = false;
  // Those that this rank has begun before this call.
  BegunCollectives collectives = {};
};

struct StepLoss {
  int64_t step = 0;
  double mean = 0;  // not finite only where the step was skipped
};

// What the ranks do next; equal on all of them.
struct RollCallPlan {
  InputPlan inputs;
  // Every rank holds the commands up to this number: they are taken in now.
  int64_t apply_commands = 0;
  std::optional<StepLoss> loss;
  // Some rank knows of a parameter that no rank used: the ranks exchange what they know of these.
  bool unused_news = false;
  // Some rank is preempted: all ranks save a checkpoint at this boundary and end.
  bool preempted = false;
  // The ranks want different parameters to be trained, but the first one that they change is the
  // same. All ranks are at the same point of the program, so they can compare all flags; nothing
  // else may be done.
  bool masks_differ = false;
  // The ranks have called different collectives whose sizes happened to be equal, so they have
  // exchanged wrong data. All ranks are at the same point of the program; they may only find out
  // which collectives differ.
  bool collectives_differ = false;
};

struct DecideOptions {
  // The names of the model's parameters, for errors.
  std::vector<std::string> names = {};
  UnevenInputs uneven_inputs = {};
  // PlanInputs' `full`.
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
