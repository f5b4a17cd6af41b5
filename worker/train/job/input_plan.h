// The input of each rank in a step, and the plan for all ranks that follows from it. Pure. Ranks
// may have different amounts of input (docs/concepts/uneven-inputs.md).
#ifndef MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_
#define MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::train {

// The divisor of the sum of the gradients of all micro-batches' mean losses.
enum class DivideBy {
  kInitial,  // all micro-batches of all ranks, as if all ranks had full input
  kActive,   // the micro-batches that the ranks actually have
  kSamples,  // all loss terms of all ranks; each loss is then the sum over its terms
};

struct UnevenInputs {
  DivideBy divide_by = DivideBy::kInitial;
  // Training ends before a step in which some rank has fewer micro-batches than another rank.
  bool stop_at_first = false;
};

// The input that one rank announces.
struct RankInput {
  int64_t micro_batches = 0;
  int64_t samples = 0;
  // For a rank without input, the first step without input; otherwise 0.
  int64_t joined_since = 0;
};

struct JoinedRank {
  int64_t rank = 0;
  int64_t since = 0;  // the first step without input
  friend bool operator==(const JoinedRank&, const JoinedRank&) = default;
};

struct InputPlan {
  // The divisor of the gradients' sum in the reduction. 1 with DivideBy::kSamples, because the
  // number of terms is known only after the forward passes.
  double divisor = 1;
  // The samples of all ranks together.
  int64_t samples = 0;
  // The most micro-batches of any rank. All ranks take part in this number of micro-batches.
  int64_t micro_batches = 0;
  // The highest rank with input, whose buffers all ranks take. -1: no rank has input.
  int buffers_from = -1;
  // The ranks without input, in rank order.
  std::vector<JoinedRank> joined;
  // With stop_at_first, the ranks that have run out of input, so that the step is not taken.
  std::vector<int64_t> ran_out;
};

// Returns the plan of a step. `ranks` is in rank order and not empty. `full`: the micro-batches of
// all ranks together if all ranks have full input.
InputPlan PlanInputs(const std::vector<RankInput>& ranks, const UnevenInputs& rules, int64_t full);

// Returns "rank 1 has run out of input", "ranks 0, 3, 4 and 2 more have ...".
std::string DescribeRanOut(const std::vector<int64_t>& ranks);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_INPUT_PLAN_H_
