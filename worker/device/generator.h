// Generators of random numbers.
#ifndef MUSTER_WORKER_DEVICE_GENERATOR_H_
#define MUSTER_WORKER_DEVICE_GENERATOR_H_

#include "ATen/core/Generator.h"
#include "c10/core/Device.h"

namespace muster::device {

// Returns a new generator for operations on this device. The same seed gives other numbers on a GPU
// than on the CPU.
at::Generator NewGenerator(c10::Device device);

// Returns the generator of this device from which operations draw that get no generator. All
// threads of the process share it.
at::Generator ProcessGenerator(c10::Device device);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_GENERATOR_H_
