// The metrics of musterd, each function those of one thing; docs/how-to/monitoring.md lists them.
#ifndef MUSTER_COORDINATOR_WEB_METRICS_H_
#define MUSTER_COORDINATOR_WEB_METRICS_H_

#include <string>
#include <vector>

#include "coordinator/jobs/job.h"
#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

// The kinds of devices, as metrics name them.
inline constexpr jobs::Device kDevices[] = {jobs::Device::kCpu, jobs::Device::kCuda};
inline const char* DeviceName(jobs::Device device) {
  return device == jobs::Device::kCuda ? "cuda" : "cpu";
}

// All jobs, ranks and nodes together, and each node.
void AddClusterMetrics(const service::Observation& seen, Exposition* out);

// Each job.
void AddJobMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

// Each rank of the jobs that have processes.
void AddRankMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

// The database and the disk that it lies on. `state_directory`: that of musterd. `writable`:
// whether the database can be written now.
void AddStoreMetrics(const std::string& state_directory, bool writable, Exposition* out);

// What the kernel counts for musterd's own process, under the names that programs in all languages
// use for it, with this program's prefix.
void AddProcessMetrics(Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_METRICS_H_
