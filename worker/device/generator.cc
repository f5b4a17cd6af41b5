#include "worker/device/generator.h"

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"

namespace muster::device {

at::Generator NewGenerator(c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator();
  at::globalContext().lazyInitDevice(device.type());
  return at::globalContext()
      .getAcceleratorHooksInterface(device.type())
      .getNewGenerator(device.index());
}

at::Generator ProcessGenerator(c10::Device device) {
  at::globalContext().lazyInitDevice(device.type());
  return at::globalContext().defaultGenerator(device);
}

}  // namespace muster::device
