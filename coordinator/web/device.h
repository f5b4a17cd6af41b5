// The kinds of devices, as metrics name them.
#ifndef MUSTER_COORDINATOR_WEB_DEVICE_H_
#define MUSTER_COORDINATOR_WEB_DEVICE_H_

#include "coordinator/jobs/job.h"

namespace muster::web {

inline constexpr jobs::Device kDevices[] = {jobs::Device::kCpu, jobs::Device::kCuda};

inline const char* DeviceName(jobs::Device device) {
  return device == jobs::Device::kCuda ? "cuda" : "cpu";
}

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_DEVICE_H_
