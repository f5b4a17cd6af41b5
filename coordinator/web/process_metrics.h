// What the kernel counts for musterd's own process, under the names that programs in all languages
// use for it, with this program's prefix.
#ifndef MUSTER_COORDINATOR_WEB_PROCESS_METRICS_H_
#define MUSTER_COORDINATOR_WEB_PROCESS_METRICS_H_

#include "coordinator/web/exposition.h"

namespace muster::web {

void AddProcessMetrics(Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_PROCESS_METRICS_H_
