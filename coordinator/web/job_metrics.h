// The metrics of each job.
#ifndef MUSTER_COORDINATOR_WEB_JOB_METRICS_H_
#define MUSTER_COORDINATOR_WEB_JOB_METRICS_H_

#include <vector>

#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

void AddJobMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_JOB_METRICS_H_
