// A place in the work of a device: on CUDA an event on the device's current stream. Work on the CPU
// is done when its call returns, so there is nothing to wait for.
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
  // An event that is behind no work.
  Event() = default;

  // An event behind all work that the current stream of this device has so far.
  static Event Now(at::Device device);

  // True if the device has come to this place. The host does not wait.
  bool Reached() const;

  // Makes the host wait until the device has come to this place.
  void Await() const;

  // Makes all later work of the device's current stream begin behind this place. The host does not
  // wait.
  void Precede(at::Device device) const;

 private:
  std::shared_ptr<c10::Event> event_;  // null: there is nothing to wait for
};

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_EVENT_H_
