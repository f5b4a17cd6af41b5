// Memory for the contributions of sums, kept from step to step, because the first use of new pages
// costs as much as the sum itself.
//
// It never frees memory. A free piece serves any request that is not larger, so after the largest
// operations have been in flight the pool allocates no more.
#ifndef MUSTER_WORKER_COMM_GLOO_SCRATCH_POOL_H_
#define MUSTER_WORKER_COMM_GLOO_SCRATCH_POOL_H_

#include <cstdint>
#include <map>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/memory/memory_scope.h"

namespace muster::comm {

// Thread-safe.
class ScratchPool {
 public:
  // A piece of at least `bytes` bytes.
  at::Tensor Take(int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto it = free_.lower_bound(bytes);
    if (it == free_.end()) {
      const memory::MemoryScope scope(memory::Purpose::kBuckets);
      return at::empty({bytes}, at::TensorOptions(at::kByte));
    }
    at::Tensor tensor = std::move(it->second);
    free_.erase(it);
    return tensor;
  }

  void Give(at::Tensor tensor) {
    absl::MutexLock lock(&mutex_);
    const int64_t bytes = tensor.numel();
    free_.emplace(bytes, std::move(tensor));
  }

 private:
  absl::Mutex mutex_;
  std::multimap<int64_t, at::Tensor> free_ ABSL_GUARDED_BY(mutex_);  // by size
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_SCRATCH_POOL_H_
