// The floating-point operations per second of which a GPU is capable, for the share that a job
// reaches of it (model FLOP/s utilization).
#ifndef MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_
#define MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_

#include <string_view>

#include "c10/core/Device.h"

namespace muster::device {

// By the name that the GPU's driver gives it: "NVIDIA H100 80GB HBM3". Of dense matrix products, a
// multiply-add as 2, from NVIDIA's data sheets: in bfloat16 or float16 with sums in float32 if
// `half`, otherwise in float32 without TF32. 0: not known.
double PeakFlopsOf(std::string_view gpu, bool half);

// Of a device of this process. 0: the CPU, and what is not known.
double PeakFlopsOf(c10::Device device, bool half);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_PEAK_FLOPS_H_
