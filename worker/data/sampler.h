// The samples that a rank takes in a step: pure arithmetic over (seed, epoch, cursor). An epoch has
// one order of the data set, and one cursor for all ranks. docs/reference/sampler.md is the
// specification.
//
// A step takes G = W*A*P (world_size * accumulate * per_rank) consecutive places of the epoch's
// order. Rank r takes places [r*A*P, (r+1)*A*P) of the step, and its micro-batch m takes the m-th P
// of the rank's places.
//
// A rank with a file of its own takes A*P consecutive places of its own file's order. The
// shortest file ends the epoch, or with Last::kUneven the longest. The cursor still counts W
// samples for each place, so that all ranks agree on the cursor.
//
// Threading: one thread, because the sampler keeps the current epoch's order. Memory and time grow
// with the data set only with Order::kShuffled.
#ifndef MUSTER_WORKER_DATA_SAMPLER_H_
#define MUSTER_WORKER_DATA_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/keyed_permutation.h"
#include "worker/data/pace.h"

namespace muster::data {

enum class Order { kShuffled, kSequential, kShuffledV2 };

// A rank's own file.
struct OwnFile {
  int64_t rank = 0;      // the rank that owns it
  int64_t shortest = 0;  // samples in the shortest file of all ranks
  int64_t longest = 0;   // in the longest file; used by Last::kUneven only
};

struct SamplerOptions {
  // The number of samples in the data set, or in the rank's own file. An own file may have none
  // with Last::kUneven.
  int64_t size = 0;
  uint64_t seed = 0;
  int64_t world_size = 1;
  int64_t per_rank = 1;    // P, samples of a micro-batch on a rank
  int64_t accumulate = 1;  // A, micro-batches of a step
  Order order = Order::kShuffled;
  Last last = Last::kDrop;
  std::optional<OwnFile> own;  // absent: the data set is common to all ranks
};

class Sampler {
 public:
  // INVALID_ARGUMENT: there is no sample, or `drop` would drop all samples.
  static absl::StatusOr<Sampler> Create(const SamplerOptions& options);

  // The places of the steps in the epochs.
  const Pace& pace() const { return pace_; }
  // The functions of pace() with these names.
  int64_t steps_per_epoch() const { return pace_.steps_per_epoch(); }
  Position Begin(Position position) const { return pace_.Begin(position); }
  Position After(Position position) const { return pace_.After(position); }

  // The samples of `rank` in `micro_batch` of the step that follows `position`. They are per_rank
  // indices, or fewer with Last::kUneven (none in the last micro-batches). If each rank has its own
  // file, `rank` must be the owner.
  std::vector<int64_t> Samples(Position position, int64_t rank, int64_t micro_batch);

  // The input of `rank` in the step that follows `position`. If each rank has its own file, `rank`
  // must be the owner.
  struct Share {
    int64_t micro_batches = 0;  // micro-batches with samples: the first ones
    int64_t samples = 0;
    // The number of earlier steps of this epoch in which the rank had no input either, if it has
    // none.
    int64_t idle_steps = 0;
  };
  Share ShareOf(Position position, int64_t rank) const;

 private:
  explicit Sampler(const SamplerOptions& options);
  // The first place of `rank` in `micro_batch` of a step that begins at this position. The place is
  // in the order of the epoch, or of the rank's own file.
  int64_t Place(const Position& begin, int64_t rank, int64_t micro_batch) const;
  void PrepareOrder(int64_t epoch);
  // The sample at a place of the prepared order.
  int64_t SampleAt(int64_t place) const;

  SamplerOptions options_;
  Pace pace_;
  int64_t cached_epoch_ = -1;
  std::vector<int64_t> permutation_;       // the order of cached_epoch_ with kShuffled
  std::optional<KeyedPermutation> keyed_;  // the order of cached_epoch_ with kShuffledV2
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SAMPLER_H_
