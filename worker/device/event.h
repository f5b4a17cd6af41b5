// A place in the work that a device was given: on CUDA an event on the device's current stream. On
// the CPU work is done when its call returns, so there is nothing to wait for.
#ifndef MUSTER_WORKER_DEVICE_EVENT_H_
#define MUSTER_WORKER_DEVICE_EVENT_H_

#include <memory>

#include "ATen/core/Tensor.h"

namespace c10 {
struct Event;
}

namespace muster::device {

// Copies are the same place. Threading: any thread.
class Event {
 public:
  // Behind no work.
  Event() = default;

  // Behind all that the current stream of this device was given so far.
  static Event Now(at::Device device);

  // Whether the device has come to this place. The host does not wait.
  bool Reached() const;

  // The host waits until the device has come to this place.
  void Await() const;

  // What the device's current stream is given from now on begins behind this place. The host does
  // not wait.
  void Precede(at::Device device) const;

 private:
  std::shared_ptr<c10::Event> event_;  // null: there is nothing to wait for
};

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_EVENT_H_
