// Observes when backward enters and leaves a unit.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_

#include <cstdint>

#include "worker/models/unit.h"

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

// Returns the inputs, to call a unit with. observer->AfterBackward(call) is called when the
// gradients of all returned tensors that require one are complete, which is after the backward of
// all operations that used them, and before backward continues.
models::Tensors ObserveInputs(const models::Tensors& inputs, BackwardObserver* observer,
                              int64_t call);

// For each output that requires a gradient, observer->BeforeBackward(call) is called when the
// gradient of the output is complete, and before the backward of any operation that the output was
// computed by. Returns the number of these outputs.
int ObserveOutputs(const models::Tensors& outputs, BackwardObserver* observer, int64_t call);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_BACKWARD_HOOKS_H_
