// The metrics of musterd's database and of the disk that it lies on.
#ifndef MUSTER_COORDINATOR_WEB_STORE_METRICS_H_
#define MUSTER_COORDINATOR_WEB_STORE_METRICS_H_

#include <string>

#include "coordinator/web/exposition.h"

namespace muster::web {

// `state_directory`: that of musterd. `writable`: whether the database can be written now.
void AddStoreMetrics(const std::string& state_directory, bool writable, Exposition* out);

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_STORE_METRICS_H_
