// Which samples a rank takes in a validation pass: every sample exactly once, in the data set's own
// order, whatever the world size. Pure.
//
// Round b covers samples [b*W*P, (b+1)*W*P), cut at the size of the data set; rank r takes the part
// of it that starts at b*W*P + r*P. In the last round some ranks may have fewer samples, or none.
//
// With files of their own, round b covers samples [b*P, (b+1)*P) of every rank's file, cut at its
// size.
#ifndef MUSTER_WORKER_DATA_EVALUATION_H_
#define MUSTER_WORKER_DATA_EVALUATION_H_

#include <cstdint>
#include <vector>

namespace muster::data {

struct EvaluationPlan {
  int64_t size = 0;
  int64_t world_size = 1;
  int64_t per_rank = 1;
  // Samples in each rank's own file, in rank order, in place of a common data set of `size`.
  std::vector<int64_t> own_sizes = {};

  // Rounds of the pass, the same on all ranks.
  int64_t rounds() const;
  // At most per_rank indices. May be empty in the last round; if each rank has its own file, also
  // in several of the last rounds.
  std::vector<int64_t> Samples(int64_t rank, int64_t round) const;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_EVALUATION_H_
