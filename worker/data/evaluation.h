// The samples that a rank takes in a validation pass: every sample exactly once, in the data set's
// own order, whatever the world size. Pure.
//
// Round b covers samples [b*W*P, (b+1)*W*P), cut at the size of the data set. Rank r takes the P
// samples from b*W*P + r*P. In the last round some ranks may have fewer samples, or none.
//
// Round b of ranks with files of their own covers samples [b*P, (b+1)*P) of every rank's file, cut
// at the size of the file.
#ifndef MUSTER_WORKER_DATA_EVALUATION_H_
#define MUSTER_WORKER_DATA_EVALUATION_H_

#include <cstdint>
#include <vector>

namespace muster::data {

struct EvaluationPlan {
  int64_t size = 0;
  int64_t world_size = 1;
  int64_t per_rank = 1;
  // The number of samples in each rank's own file, in rank order, if there is no common data set of
  // `size`.
  std::vector<int64_t> own_sizes = {};

  // The number of rounds of the pass, the same on all ranks.
  int64_t rounds() const;
  // Returns at most per_rank indices. May be empty in the last round, and also in earlier rounds if
  // each rank has its own file.
  std::vector<int64_t> Samples(int64_t rank, int64_t round) const;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_EVALUATION_H_
