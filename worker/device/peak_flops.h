// The floating-point operations per second that a GPU can do at most. They are the base of a job's
// model FLOP/s utilization.
#ifndef MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_
#define MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_

#include <string_view>

#include "c10/core/Device.h"

namespace muster::device {

// Returns the peak of the GPU with this name (as its driver gives it: "NVIDIA H100 80GB HBM3"),
// from NVIDIA's data sheets. It counts dense matrix products, with a multiply-add as 2. With
// `half`: in bfloat16 or float16 with sums in float32. Otherwise: in float32 without TF32. 0: not
// known.
double PeakFlopsOf(std::string_view gpu, bool half);

// Returns the peak of a device of this process. 0: the CPU, or an unknown GPU.
double PeakFlopsOf(c10::Device device, bool half);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_
