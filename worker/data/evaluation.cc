#include "worker/data/evaluation.h"

#include <algorithm>

namespace muster::data {

int64_t EvaluationPlan::rounds() const {
  const int64_t round = world_size * per_rank;
  return (size + round - 1) / round;
}

std::vector<int64_t> EvaluationPlan::Samples(int64_t rank, int64_t round) const {
  const int64_t begin = std::min(size, (round * world_size + rank) * per_rank);
  const int64_t end = std::min(size, begin + per_rank);
  std::vector<int64_t> samples;
  for (int64_t i = begin; i < end; ++i) samples.push_back(i);
  return samples;
}

}  // namespace muster::data
