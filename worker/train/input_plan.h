// Who brings what to a step, and what follows for all: pure. Ranks may have different amounts of
// input; docs/uneven-inputs.md.
#ifndef MUSTER_WORKER_TRAIN_INPUT_PLAN_H_
#define MUSTER_WORKER_TRAIN_INPUT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muster::train {

// What the sum of the gradients of all micro-batches' mean losses is divided by.
enum class DivideBy {
  kInitial,  // what all ranks would bring together with full input
  kActive,   // the micro-batches that were brought
  kSamples,  // the loss terms that were seen; each loss is the sum over its terms then
};

struct UnevenInputs {
  DivideBy divide_by = DivideBy::kInitial;
  // Training ends before a step to which some rank brings fewer micro-batches than others.
  bool stop_at_first = false;
};

// What one rank says that it will bring.
struct RankInput {
  int64_t micro_batches = 0;
  int64_t samples = 0;
  // The first step to which it brought nothing, where it brings nothing; else 0.
  int64_t joined_since = 0;
};

struct JoinedRank {
  int64_t rank = 0;
  int64_t since = 0;  // the first step to which it brought nothing
  friend bool operator==(const JoinedRank&, const JoinedRank&) = default;
};

struct InputPlan {
  // Divides the sum of all gradients in the reduction. With DivideBy::kSamples 1: how many terms
  // there are shows in the forwards.
  double divisor = 1;
  // Of all ranks.
  int64_t samples = 0;
  // Of the rank that brings the most: all take part in so many.
  int64_t micro_batches = 0;
  // The highest rank with input: all go on with its buffers. -1: nobody has any.
  int buffers_from = -1;
  // By rank.
  std::vector<JoinedRank> joined;
  // With stop_at_first, the ranks because of which the step is not to be taken.
  std::vector<int64_t> ran_out;
};

// By rank; not empty. full: micro-batches of all ranks together where all have input.
InputPlan PlanInputs(const std::vector<RankInput>& ranks, const UnevenInputs& rules, int64_t full);

// "rank 1 has run out of input", "ranks 0, 3, 4 and 2 more have ...".
std::string DescribeRanOut(const std::vector<int64_t>& ranks);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_INPUT_PLAN_H_
