#include "worker/data/evaluation.h"

#include <algorithm>

namespace muster::data {

int64_t EvaluationPlan::rounds() const {
  if (!own_sizes.empty()) {
    const int64_t longest = *std::max_element(own_sizes.begin(), own_sizes.end());
    return (longest + per_rank - 1) / per_rank;
  }
  const int64_t round = world_size * per_rank;
  return (size + round - 1) / round;
}

std::vector<int64_t> EvaluationPlan::Samples(int64_t rank, int64_t round) const {
  const bool own = !own_sizes.empty();
  const int64_t all = own ? own_sizes[rank] : size;
  const int64_t begin = std::min(all, (own ? round : round * world_size + rank) * per_rank);
  const int64_t end = std::min(all, begin + per_rank);
  std::vector<int64_t> samples;
  for (int64_t i = begin; i < end; ++i) samples.push_back(i);
  return samples;
}

}  // namespace muster::data
