// Observes when backward enters and leaves a unit.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace muster::parallel {

// Is called for calls of units; the caller of ObserveInput and ObserveOutput chooses the numbers of
// the calls. An exception from these methods ends the backward and is thrown by it. The observer
// must outlive the graphs that refer to it.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  virtual void BeforeBackward(int64_t call) = 0;
  virtual void AfterBackward(int64_t call) = 0;
};

// Returns x, to call a unit with. observer->AfterBackward(call) is called when the gradient of the
// result is complete, which is after the backward of all operations that used it, and before
// backward continues.
at::Tensor ObserveInput(const at::Tensor& x, BackwardObserver* observer, int64_t call);

// y must require a gradient. observer->BeforeBackward(call) is called when the gradient of y is
// complete, and before the backward of any operation that y was computed by.
void ObserveOutput(const at::Tensor& y, BackwardObserver* observer, int64_t call);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
