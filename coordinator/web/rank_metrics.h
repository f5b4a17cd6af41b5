// The metrics of each rank of the jobs that have processes.
#ifndef MUSTER_COORDINATOR_WEB_RANK_METRICS_H_
#define MUSTER_COORDINATOR_WEB_RANK_METRICS_H_

#include <vector>

#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

void AddRankMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_RANK_METRICS_H_
