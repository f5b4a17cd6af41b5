// Which samples a rank takes in a step: pure arithmetic over (seed, epoch, cursor). One order of
// the data set per epoch, one cursor for all ranks. docs/sampler.md is the specification.
//
// A step takes G = world_size * accumulate * per_rank consecutive positions of the epoch's order.
// Rank r takes positions [r*A*P, (r+1)*A*P) of them, and its micro-batch m the m-th P of those.
//
// If each rank has its own file, a rank takes A*P consecutive positions of its own file's order,
// and the shortest file ends the epoch, or with Last::kUneven the longest. The cursor still counts
// W samples for each place, so that all ranks agree on it.
//
// Threading: one thread (it keeps the current epoch's order; only with Order::kShuffled does this
// take memory and time that grow with the data set).
#ifndef MUSTER_WORKER_DATA_SAMPLER_H_
#define MUSTER_WORKER_DATA_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/keyed_permutation.h"

namespace muster::data {

enum class Order { kShuffled, kSequential, kShuffledV2 };

// What happens with the samples at the end of an epoch that do not fill a global batch: they are
// dropped; or the batch is filled up from the start of the epoch's order; or the first ranks get
// them, and the other ranks have fewer samples in that step, or none.
enum class Last { kDrop, kPad, kUneven };

// A rank's own file.
struct OwnFile {
  int64_t rank = 0;      // the rank that owns it
  int64_t shortest = 0;  // samples in the shortest file of all ranks
  int64_t longest = 0;   // in the longest file; used by Last::kUneven only
};

struct SamplerOptions {
  // Samples in the data set, or in the own file, which may have none with Last::kUneven.
  int64_t size = 0;
  uint64_t seed = 0;
  int64_t world_size = 1;
  int64_t per_rank = 1;    // P, samples of one micro-batch on one rank
  int64_t accumulate = 1;  // A, micro-batches of one step
  Order order = Order::kShuffled;
  Last last = Last::kDrop;
  std::optional<OwnFile> own;  // absent: the data set is common to all ranks
};

// What all ranks together have consumed: all epochs before `epoch`, and `cursor` samples of this
// epoch. Independent of the world size, unless each rank has its own file.
struct Position {
  int64_t epoch = 0;
  int64_t cursor = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

class Sampler {
 public:
  // INVALID_ARGUMENT: there is no sample, or `drop` would drop all samples.
  static absl::StatusOr<Sampler> Create(const SamplerOptions& options);

  int64_t global_batch() const { return global_batch_; }
  // The number of steps of one whole epoch.
  int64_t steps_per_epoch() const;

  // Where the step that follows `position` begins: `position` itself, or the start of the next
  // epoch if the rest of this epoch is not enough for a step.
  Position Begin(Position position) const;

  // What has been consumed after the step that follows `position`. Its cursor never passes the
  // size of the data set, and only the step that begins the next epoch moves it there.
  Position After(Position position) const;

  // The samples of `rank` in `micro_batch` of the step that follows `position`: per_rank indices,
  // or fewer with Last::kUneven (none in the last micro-batches). If each rank has its own file,
  // `rank` must be the owner.
  std::vector<int64_t> Samples(Position position, int64_t rank, int64_t micro_batch);

  // The input of `rank` in that step. If each rank has its own file, `rank` must be the owner.
  struct Share {
    int64_t micro_batches = 0;  // how many have samples; these are the first ones
    int64_t samples = 0;
    // If it has no input: the number of earlier steps of this epoch in which it had none either.
    int64_t idle_steps = 0;
  };
  Share ShareOf(Position position, int64_t rank) const;

 private:
  explicit Sampler(const SamplerOptions& options);
  // For a step that begins at this position: the first place of `rank` in `micro_batch`, in the
  // order of the epoch, or of its own file if it has one.
  int64_t Place(const Position& begin, int64_t rank, int64_t micro_batch) const;
  void PrepareOrder(int64_t epoch);
  // The sample at a place of the order that was prepared.
  int64_t SampleAt(int64_t place) const;

  SamplerOptions options_;
  int64_t global_batch_;
  int64_t epoch_size_;  // where the cursor ends
  int64_t cached_epoch_ = -1;
  std::vector<int64_t> permutation_;       // the order of cached_epoch_ with kShuffled
  std::optional<KeyedPermutation> keyed_;  // the same with kShuffledV2
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SAMPLER_H_
