// The metrics of all jobs, ranks and nodes together, and of each node.
#ifndef MUSTER_COORDINATOR_WEB_CLUSTER_METRICS_H_
#define MUSTER_COORDINATOR_WEB_CLUSTER_METRICS_H_

#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"

namespace muster::web {

void AddClusterMetrics(const service::Observation& seen, Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_CLUSTER_METRICS_H_
