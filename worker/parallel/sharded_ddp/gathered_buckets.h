// The parameters of sharded_ddp: flat buckets that every rank holds whole and of which it updates
// one slice. After an update the new slices are all-gathered in place, in the order in which
// forward needs the buckets.
//
// Threading: one thread.
#ifndef MUSTER_WORKER_PARALLEL_SHARDED_DDP_GATHERED_BUCKETS_H_
#define MUSTER_WORKER_PARALLEL_SHARDED_DDP_GATHERED_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

class GatheredBuckets {
 public:
  // parameters: of the model. groups: one for each bucket; their members are indices of
  // `trainable`, which has indices of `parameters`. Moves the parameters into the buckets. A group
  // whose parameters already lie in `kept` as it wants them stays there. root: as for
  // CreateShardedDdp. The communicator must outlive this object.
  GatheredBuckets(const std::vector<models::Parameter>& parameters,
                  const std::vector<size_t>& trainable, const std::vector<layout::Group>& groups,
                  const models::Unit* root, comm::Communicator* communicator, KeptMemory kept);
  // Waits for the gathers that are in flight.
  ~GatheredBuckets();
  GatheredBuckets(const GatheredBuckets&) = delete;
  GatheredBuckets& operator=(const GatheredBuckets&) = delete;

  // This rank's slice of a bucket.
  const at::Tensor& own_slice(size_t bucket) const { return buckets_[bucket].own_parameters; }

  // Starts to gather all buckets.
  void Start(int64_t step);
  // Waits for all gathers. The first error since Finish.
  absl::Status Await();
  // The same; the next error is the first one then.
  absl::Status Finish();

  // The context for forwards of the model: a unit waits for its own parameters, and who reads what
  // the root returned finds all of them. This object must outlive it.
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode, at::Generator generator);

  // As Strategy::ReleaseModel.
  KeptMemory ReleaseModel();

 private:
  class AwaitingContext;

  struct Bucket {
    at::Tensor parameters;      // the whole bucket, on every rank
    at::Tensor own_parameters;  // this rank's slice of it
    std::unique_ptr<comm::Work> gather;
    std::string gather_label;
  };

  // Returns the memory of each group, with its parameters in it.
  std::vector<at::Tensor> PlaceParameters(const std::vector<models::Parameter>& parameters,
                                          const std::vector<size_t>& trainable,
                                          const std::vector<layout::Group>& groups,
                                          KeptMemory kept);
  void PlanGathers(const std::vector<models::Parameter>& parameters,
                   const std::vector<size_t>& trainable, const std::vector<layout::Group>& groups);
  // Wait until the unit's own parameters, or all of them, have arrived. They throw
  // models::ContextError if a parameter did not arrive, because the forward must not go on then.
  void AwaitUnit(const models::Unit& unit);
  void AwaitAll();
  void AwaitGather(Bucket& bucket);

  comm::Communicator* const communicator_;
  const models::Unit* const root_;
  // The memory of the parameters. A frozen parameter lies there only if it was in a bucket of an
  // earlier plan.
  std::vector<at::Tensor> flats_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> gather_order_;  // the buckets in the order in which forward needs them
  std::unordered_map<const models::Unit*, std::vector<size_t>> buckets_of_unit_;

  int64_t gathering_ = 0;  // number of buckets whose gather is in flight
  absl::Status error_;     // of the first gather that failed
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SHARDED_DDP_GATHERED_BUCKETS_H_
