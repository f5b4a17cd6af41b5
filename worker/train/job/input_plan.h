// The input of each rank in a step, and what follows from it for all ranks. Pure. Ranks may have
// different amounts of input; see docs/concepts/uneven-inputs.md.
#ifndef MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_
#define MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::train {

// What the sum of the gradients of all micro-batches' mean losses is divided by.
enum class DivideBy {
  kInitial,  // the micro-batches of all ranks together if all have full input
  kActive,   // the micro-batches that the ranks actually have
  kSamples,  // the loss terms of all ranks; then each loss is the sum over its terms
};

struct UnevenInputs {
  DivideBy divide_by = DivideBy::kInitial;
  // Training ends before a step in which some rank has fewer micro-batches than others.
  bool stop_at_first = false;
};

// The input that one rank announces.
struct RankInput {
  int64_t micro_batches = 0;
  int64_t samples = 0;
  // If it has no input: the first step in which it had none; else 0.
  int64_t joined_since = 0;
};

struct JoinedRank {
  int64_t rank = 0;
  int64_t since = 0;  // the first step in which it had no input
  friend bool operator==(const JoinedRank&, const JoinedRank&) = default;
};

struct InputPlan {
  // Divides the sum of all gradients in the reduction. With DivideBy::kSamples it is 1, because the
  // number of terms is known only after the forward passes.
  double divisor = 1;
  // The samples of all ranks together.
  int64_t samples = 0;
  // The micro-batches of the rank that has the most: all ranks take part in this many.
  int64_t micro_batches = 0;
  // The highest rank with input, with whose buffers all ranks continue. -1: no rank has input.
  int buffers_from = -1;
  // The ranks without input, in rank order.
  std::vector<JoinedRank> joined;
  // With stop_at_first, the ranks because of which the step must not be taken.
  std::vector<int64_t> ran_out;
};

// `ranks` is in rank order and not empty. `full`: the micro-batches of all ranks together if all
// have full input.
InputPlan PlanInputs(const std::vector<RankInput>& ranks, const UnevenInputs& rules, int64_t full);

// "rank 1 has run out of input", "ranks 0, 3, 4 and 2 more have ...".
std::string DescribeRanOut(const std::vector<int64_t>& ranks);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_
