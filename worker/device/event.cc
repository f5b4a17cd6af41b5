#include "worker/device/event.h"

#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace muster::device {
namespace {

c10::Stream CurrentStream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Event Event::Now(at::Device device) {
  Event now;
  if (device.is_cpu()) return now;
  now.event_ = std::make_shared<c10::Event>(device.type());
  now.event_->record(CurrentStream(device));
  return now;
}

bool Event::Reached() const { return event_ == nullptr || event_->query(); }

void Event::Await() const {
  if (event_ != nullptr) event_->synchronize();
}

void Event::Precede(at::Device device) const {
  if (event_ != nullptr) event_->block(CurrentStream(device));
}

}  // namespace muster::device
