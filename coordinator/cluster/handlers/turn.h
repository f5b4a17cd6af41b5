// What a handler works with while it handles one event: the parts of the state, the time of the
// event, and what comes of it.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/options.h"
#include "coordinator/cluster/parts/line.h"
#include "coordinator/cluster/parts/parts.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

// The rows to store, and what the caller must do once they are stored.
struct Outcome {
  store::Batch batch;
  std::vector<Effect> effects;
};

struct Turn {
  Turn(Parts* parts, Outcome* outcome, absl::Time time)
      : options(parts->options),
        membership(parts->membership),
        requests(parts->requests),
        nodes(parts->nodes),
        restored(parts->restored),
        streams(parts->streams),
        jobs(parts->jobs),
        outbox(parts->outbox),
        clock(parts->clock),
        now(time),
        batch(outcome->batch),
        effects(outcome->effects) {}

  // For the daemon's own log.
  void Say(std::string text) { effects.push_back(cluster::Say{std::move(text)}); }
  // Keeps the answer of a request.
  void Remember(store::RequestRow row) {
    std::vector<store::RequestRow> rows = requests.Remember(std::move(row));
    if (options.planted_fault == PlantedFault::kLostRequestId) return;
    std::move(rows.begin(), rows.end(), std::back_inserter(batch.requests));
  }
  // Who starts next.
  Line line() const { return {membership, nodes, restored, jobs, now}; }

  const Options& options;
  membership::Membership& membership;
  Requests& requests;
  Nodes& nodes;
  Restored& restored;
  Streams& streams;
  Jobs& jobs;
  webhook::Outbox& outbox;
  Clock& clock;
  const absl::Time now;
  store::Batch& batch;
  std::vector<Effect>& effects;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_TURN_H_
