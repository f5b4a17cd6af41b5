#include "worker/train/job/input_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/train/job/numbered.h"

namespace muster::train {

InputPlan PlanInputs(const std::vector<RankInput>& ranks, const UnevenInputs& rules, int64_t full) {
  InputPlan plan;
  int64_t brought = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankInput& input = ranks[rank];
    plan.samples += input.samples;
    plan.micro_batches = std::max(plan.micro_batches, input.micro_batches);
    brought += input.micro_batches;
    if (input.micro_batches > 0) {
      plan.buffers_from = static_cast<int>(rank);
    } else if (input.joined_since > 0) {
      plan.joined.push_back({static_cast<int64_t>(rank), input.joined_since});
    }
  }
  if (rules.divide_by != DivideBy::kSamples) {
    const int64_t divisor = rules.divide_by == DivideBy::kInitial ? full : brought;
    plan.divisor = static_cast<double>(std::max<int64_t>(divisor, 1));
  }
  for (size_t rank = 0; rules.stop_at_first && rank < ranks.size(); ++rank) {
    if (ranks[rank].micro_batches < plan.micro_batches) plan.ran_out.push_back(rank);
  }
  return plan;
}

std::string DescribeRanOut(const std::vector<int64_t>& ranks) {
  return absl::StrCat(Numbered("rank", ranks), ranks.size() == 1 ? " has" : " have",
                      " run out of input");
}

}  // namespace muster::train
