// The parameters of sharded_ddp, in flat buckets. Every rank holds each bucket whole and updates
// one slice of the bucket. After an update the new slices are all-gathered in place, in the order
// in which forward needs the buckets.
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
  // parameters: of the model. trainable: indices of `parameters`. groups: one for each bucket,
  // whose members are indices of `trainable`. root: see CreateShardedDdp. Moves the parameters into
  // the buckets. A group whose parameters already lie in `kept` at the right offsets stays there.
  // The communicator must outlive this object.
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
  // Waits for all gathers. Returns the first error since Finish.
  absl::Status Await();
  // Waits for all gathers, returns the first error, and clears it.
  absl::Status Finish();

  // Returns a context for forwards of the model. There, a unit waits for its own parameters, and a
  // call of the root returns when all have arrived. This object must outlive the context.
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode, at::Generator generator);

  // See Strategy::ReleaseModel.
  KeptMemory ReleaseModel();

 private:
  class AwaitingContext;

  struct Bucket {
    at::Tensor parameters;      // the whole bucket, on every rank
    at::Tensor own_parameters;  // this rank's slice of the bucket
    std::unique_ptr<comm::Work> gather;
    std::string gather_label;
  };

  // Returns the memory of each group, with the group's parameters in it.
  std::vector<at::Tensor> PlaceParameters(const std::vector<models::Parameter>& parameters,
                                          const std::vector<size_t>& trainable,
                                          const std::vector<layout::Group>& groups,
                                          KeptMemory kept);
  void PlanGathers(const std::vector<models::Parameter>& parameters,
                   const std::vector<size_t>& trainable, const std::vector<layout::Group>& groups);
  // Waits until the unit's own parameters, or all parameters, have arrived. Throws
  // models::ContextError if a parameter did not arrive, because the forward must not continue then.
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

  int64_t gathering_ = 0;  // number of buckets with a gather in flight
  absl::Status error_;     // of the first gather that failed
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SHARDED_DDP_GATHERED_BUCKETS_H_
