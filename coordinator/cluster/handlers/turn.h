// The data that handlers work with: the parts of the state, the time of the current event, and the
// results of the event. There is one Turn, which lives as long as the Cluster.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/parts/line.h"
#include "coordinator/cluster/parts/parts.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

struct Turn : Parts {
  using Parts::Parts;

  // Adds a line to the daemon's own log.
  void Say(std::string text) { effects.push_back(cluster::Say{std::move(text)}); }
  // Keeps the answer of a request.
  void Remember(store::RequestRow row) {
    std::vector<store::RequestRow> rows = requests.Remember(std::move(row));
    if (options.planted_fault == PlantedFault::kLostRequestId) return;
    std::move(rows.begin(), rows.end(), std::back_inserter(batch.requests));
  }
  // The jobs in line for slots at this time.
  Line line() const { return {*this, now}; }

  absl::Time now;
  // The rows to store, and what the caller must do once they are stored.
  store::Batch batch;
  std::vector<Effect> effects;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_
