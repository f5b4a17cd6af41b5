// The metrics of musterd. Each function adds the metrics of one subject; docs/how-to/monitoring.md
// lists them.
#ifndef MUSTER_COORDINATOR_WEB_METRICS_H_
#define MUSTER_COORDINATOR_WEB_METRICS_H_

#include <string>
#include <vector>

#include "coordinator/jobs/job.h"
#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

// The kinds of devices that metrics name.
inline constexpr jobs::Device kDevices[] = {jobs::Device::kCpu, jobs::Device::kCuda};
inline const char* DeviceName(jobs::Device device) {
  return device == jobs::Device::kCuda ? "cuda" : "cpu";
}

// Adds the metrics of all jobs, ranks and nodes together, and of each node.
void AddClusterMetrics(const service::Observation& seen, Exposition* out);

// Adds the metrics of each job.
void AddJobMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

// Adds the metrics of each rank of the jobs with processes.
void AddRankMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

// Adds the metrics of the database and its disk. `state_directory`: musterd's. `writable`: whether
// the database can be written now.
void AddStoreMetrics(const std::string& state_directory, bool writable, Exposition* out);

// Adds the kernel's figures of musterd's own process. The names are those that programs in all
// languages use, with this program's prefix.
void AddProcessMetrics(Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_METRICS_H_
