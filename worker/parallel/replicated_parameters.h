// The store of strategies whose ranks have all parameters: ddp, sharded_ddp.
#ifndef MUSTER_WORKER_PARALLEL_REPLICATED_PARAMETERS_H_
#define MUSTER_WORKER_PARALLEL_REPLICATED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

// There is nothing to gather or to free, and no method is a collective.
class ReplicatedParameters : public ParameterStore {
 public:
  const ParameterShards* shards() const override { return nullptr; }
  absl::Status Gather(const std::vector<size_t>&) override { return absl::OkStatus(); }
  void Release() override {}
  absl::Status BeginPass(PassMemory, std::function<void()> exchange) override {
    exchange_ = std::move(exchange);
    if (exchange_ != nullptr) exchange_();
    return absl::OkStatus();
  }
  absl::Status EndPass() override {
    if (exchange_ != nullptr) std::exchange(exchange_, nullptr)();
    return absl::OkStatus();
  }
  int64_t BytesOfWholePass() const override { return 0; }

 private:
  std::function<void()> exchange_;  // only in a pass
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_REPLICATED_PARAMETERS_H_
