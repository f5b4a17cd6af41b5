// All parts of the cluster's state, and the cluster's settings. Each header describes the decisions
// of its part. No part knows another part: coordinator/cluster/handlers decides what concerns
// several parts. A Scheduler (scheduler.h) is no part of the state: it is made from several parts
// to answer questions.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_CLUSTER_STATE_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_CLUSTER_STATE_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/cluster/state/jobs.h"
#include "coordinator/cluster/state/nodes.h"
#include "coordinator/cluster/state/requests.h"
#include "coordinator/cluster/state/restored.h"
#include "coordinator/cluster/state/streams.h"
#include "coordinator/jobs/life.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/timing.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/outbox.h"

namespace muster::cluster {

// Faults that the simulation must be able to find. Programs never set them, and there is no flag.
enum class PlantedFault {
  kNone,
  // Effects are carried out before their changes are durable: each transaction commits the changes
  // of the transaction before.
  kLatePersist,
  // A checkpoint counts even if a process of an older generation reports it.
  kUnfencedCommit,
  // Answered requests are not stored.
  kLostRequestId,
  // A rank is replaced when the process that holds it begins to end, and not when the process has
  // ended.
  kLeaseWithoutMargin,
};

// The settings of a cluster.
struct Options {
  membership::Timing timing;
  jobs::EndTimeouts end_timeouts;
  Limits limits;
  // Makes a unique name for a process: random in programs, counted in tests.
  std::function<std::string()> new_incarnation;
  webhook::OutboxOptions webhooks;
  // The planted fault. Only tests set it.
  PlantedFault planted_fault = PlantedFault::kNone;
};

struct ClusterState {
  ClusterState(const Options& settings, const store::Image& image, absl::Time now)
      : options(settings),
        membership(settings.timing),
        requests(settings.limits.request_ids, image.requests),
        nodes(image.node_marks),
        restored(now + settings.timing.Grant()),
        jobs(image.last_number),
        outbox(settings.webhooks, image.deliveries),
        last_tick(now) {}

  const Options options;
  membership::Membership membership;
  Requests requests;
  Nodes nodes;
  Restored restored;
  Streams streams;
  Jobs jobs;
  webhook::Outbox outbox;
  absl::Time last_tick;
  // Whether silent agents and workers count as lost.
  bool judging = true;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_CLUSTER_STATE_H_
