// Devices that stand in for GPUs in tests on machines without them. Their tensors are on LibTorch's
// devices "hpu:0" to "hpu:7", for which the LibTorch of these tests has no other code. (Of the free
// devices, it is one to which Tensor::set_data can move a parameter.) So every operation that mixes
// them with tensors on the CPU throws, and so does code that takes their memory for host memory
// through worker/device. Their memory is host memory, and their operations are computed by
// LibTorch's kernels for the CPU. So a computation has the same bits as on the CPU,
// unless LibTorch composes an operation of others where a device has no kernel for it (layer_norm).
//
// Each has one stream, whose work is done when its call returns. So it shows whether tensors are on
// the right device, and nothing of the order of work on several streams. Ranks that are threads of
// one process need a device each: autograd runs all backward passes of a device in one thread, in
// which a rank would wait for another one.
#ifndef MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_
#define MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_

#include <cstdint>

#include "c10/core/Device.h"

namespace muster::device {

inline constexpr c10::DeviceIndex kStandInDevices = 8;

// Tensors that were allocated on all of them so far, so that a test can show that it used them.
int64_t StandInAllocations();

// While one lives, operations for which the host would have to wait for a GPU throw, in all
// threads: reading the value of a tensor (item), and copies between a device and host memory that
// is not pinned. Readback and events may wait.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

// One of them. They are registered with LibTorch when the program is loaded. Threading: any thread.
c10::Device StandInDevice(c10::DeviceIndex index = 0);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_STAND_IN_STAND_IN_DEVICE_H_
