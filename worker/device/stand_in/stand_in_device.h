// Devices that stand in for GPUs in tests on machines without GPUs. Their tensors are on LibTorch's
// devices "hpu:0" to "hpu:7", for which the LibTorch of these tests has no other code.
// (Tensor::set_data can move a parameter to this kind of device.)
//
// An operation that mixes stand-in tensors with tensors on the CPU throws. Code that takes their
// memory for host memory through worker/device throws, too. Their memory is host memory, and
// LibTorch's kernels for the CPU compute their operations. So a computation has the same bits as on
// the CPU. The exception is an operation that LibTorch composes of others on a device without a
// kernel for it (layer_norm).
//
// Each device has one stream, whose work is done when its call returns. So tests find tensors on
// the wrong device, but no wrong order of work on several streams. Ranks that are threads of one
// process need a device each. Autograd runs all backward passes of a device in one thread, in which
// a rank would wait for another rank.
#ifndef MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_
#define MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_

#include <cstdint>

#include "c10/core/Device.h"

namespace muster::device {

inline constexpr c10::DeviceIndex kStandInDevices = 8;

// Returns the number of tensors that were allocated on all stand-in devices so far, so that a test
// can show that it used them.
int64_t StandInAllocations();

// An object that forbids waiting, in all threads. While it lives, operations throw if the host
// would have to wait for a GPU. These are reading the value of a tensor (item), and copies between
// a device and unpinned host memory. Readback and events may wait.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

// Returns a stand-in device. They are registered with LibTorch when the program is loaded.
// Threading: any thread.
c10::Device StandInDevice(c10::DeviceIndex index = 0);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_
