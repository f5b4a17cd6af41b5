// Where backward enters and leaves a unit.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace muster::parallel {

// Of calls of units, numbered by whoever gives the numbers. What these throw ends the backward and
// comes out of it. It must outlive the graphs in which it is named.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  virtual void BeforeBackward(int64_t call) = 0;
  virtual void AfterBackward(int64_t call) = 0;
};

// x, for a unit to be called on: once its gradient is complete, which is when all operations that
// came of it have gone backward, and before it goes further, observer->AfterBackward(call).
at::Tensor ObserveInput(const at::Tensor& x, BackwardObserver* observer, int64_t call);

// Once the gradient of y, which needs one, is complete, and before any operation behind it goes
// backward, observer->BeforeBackward(call).
void ObserveOutput(const at::Tensor& y, BackwardObserver* observer, int64_t call);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
