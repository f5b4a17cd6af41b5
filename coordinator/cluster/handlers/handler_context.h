// The data that handlers work with: the parts of the state, the time of the current event, and the
// results of the event. There is one HandlerContext, which lives as long as the Cluster.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLER_CONTEXT_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLER_CONTEXT_H_

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/state/cluster_state.h"
#include "coordinator/cluster/state/scheduler.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

struct HandlerContext : ClusterState {
  using ClusterState::ClusterState;

  // Adds a line to the daemon's own log.
  void Log(std::string text) { effects.push_back(cluster::LogMessage{std::move(text)}); }
  // Keeps the answer of a request.
  void Remember(store::RequestRow row) {
    std::vector<store::RequestRow> rows = requests.Remember(std::move(row));
    if (options.planted_fault == PlantedFault::kLostRequestId) return;
    std::move(rows.begin(), rows.end(), std::back_inserter(batch.requests));
  }
  // The jobs in line for slots at this time.
  Scheduler scheduler() const { return {*this, now}; }

  absl::Time now;
  // The rows to store, and what the caller must do once they are stored.
  store::Batch batch;
  std::vector<Effect> effects;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLER_CONTEXT_H_
