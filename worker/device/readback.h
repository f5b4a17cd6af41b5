// Numbers that a device computes and that the host reads later.
#ifndef MUSTER_WORKER_DEVICE_READBACK_H_
#define MUSTER_WORKER_DEVICE_READBACK_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "worker/device/event.h"

namespace muster::device {

// Threading: one thread at a time.
class Readback {
 public:
  // A readback of no numbers.
  Readback() = default;

  // Starts to copy all elements of the tensors, in order, as float64 to the host. The tensors
  // contain numbers or bools, are on one device, and may have any shape. The host does not wait,
  // and the tensors may be changed or freed after the call. On the CPU the copy is complete on
  // return.
  explicit Readback(const std::vector<at::Tensor>& tensors);

  // Waits until the device has computed and copied the numbers. They are valid as long as this
  // object.
  absl::Span<const double> Await() const;

 private:
  at::Tensor host_;  // undefined: no numbers
  Event copied_;
};

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_READBACK_H_
