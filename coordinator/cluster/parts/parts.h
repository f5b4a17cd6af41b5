// All parts of the cluster's state. Each header says what its part decides. No part knows another
// one: what concerns several of them is decided in coordinator/cluster/handlers. A Line (line.h) is
// no part of the state: it is made from several parts to answer questions.
#ifndef MUSTER_COORDINATOR_CLUSTER_PARTS_PARTS_H_
#define MUSTER_COORDINATOR_CLUSTER_PARTS_PARTS_H_

#include "absl/time/time.h"
#include "coordinator/cluster/options.h"
#include "coordinator/cluster/parts/jobs.h"
#include "coordinator/cluster/parts/nodes.h"
#include "coordinator/cluster/parts/requests.h"
#include "coordinator/cluster/parts/restored.h"
#include "coordinator/cluster/parts/streams.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/outbox.h"

namespace muster::cluster {

// What changes with the time alone.
struct Clock {
  absl::Time last_tick;
  // Whether silent agents and workers are given up.
  bool judging = true;
};

struct Parts {
  Parts(const Options& settings, const store::Image& image, absl::Time now)
      : options(settings),
        membership(settings.timing),
        requests(settings.limits.request_ids, image.requests),
        nodes(image.node_marks),
        restored(now + settings.timing.Grant()),
        jobs(image.last_number),
        outbox(settings.webhooks, image.deliveries),
        clock{.last_tick = now} {}

  const Options options;
  membership::Membership membership;
  Requests requests;
  Nodes nodes;
  Restored restored;
  Streams streams;
  Jobs jobs;
  webhook::Outbox outbox;
  Clock clock;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_PARTS_PARTS_H_
