// The store of fsdp: each rank holds slices of all parameters between steps.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_SHARDED_PARAMETERS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_SHARDED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/parallel/fsdp/unit_calls.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/parameter_store.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

class ShardedParameters : public ParameterStore {
 public:
  // plan: of the units. flats: as KeptMemory::flats. `whole` and `calls` must outlive this object.
  ShardedParameters(const std::vector<PlannedUnit>& plan, ParameterShards shards,
                    std::vector<at::Tensor> flats, WholeUnits* whole, UnitCalls* calls);

  const ParameterShards* shards() const override { return &shards_; }
  absl::Status Gather(const std::vector<size_t>& parameters) override;
  void Release() override { whole_->ReleaseValues(); }
  absl::Status BeginPass(PassMemory memory, std::function<void()> exchange) override {
    return whole_->BeginPass(memory, std::move(exchange));
  }
  absl::Status EndPass() override { return whole_->EndPass(); }
  int64_t BytesOfWholePass() const override { return whole_->bytes_to_gather(); }

  // Whether Gather was called since the last call of this method.
  bool TakeGathered() { return std::exchange(gathered_, false); }
  // As Strategy::ReleaseModel.
  KeptMemory ReleaseModel();

 private:
  ParameterShards shards_;
  std::vector<at::Tensor> flats_;  // the memory of this rank's slices
  WholeUnits* const whole_;
  UnitCalls* const calls_;
  const size_t units_;                     // their number
  std::vector<size_t> unit_of_parameter_;  // indices in the plan
  bool gathered_ = false;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_SHARDED_PARAMETERS_H_
