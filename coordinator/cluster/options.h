// The settings of a cluster.
#ifndef MUSTER_COORDINATOR_CLUSTER_OPTIONS_H_
#define MUSTER_COORDINATOR_CLUSTER_OPTIONS_H_

#include <functional>
#include <string>

#include "coordinator/jobs/life.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/timing.h"
#include "coordinator/webhook/outbox.h"

namespace muster::cluster {

// Faults that the simulation must be able to find. Programs never set them; there is no flag for
// them.
enum class PlantedFault {
  kNone,
  // Effects are carried out before the changes that caused them are durable: each transaction
  // commits the changes of the one before.
  kLatePersist,
  // A checkpoint counts whichever generation's process reports it.
  kUnfencedCommit,
  // The answered requests are not stored.
  kLostRequestId,
  // A rank is replaced at the moment at which the process that holds it only begins to end.
  kLeaseWithoutMargin,
};

struct Options {
  membership::Timing timing;
  jobs::EndTimeouts end_timeouts;
  Limits limits;
  // Makes a unique name for a process. Random in programs, counted in tests.
  std::function<std::string()> new_incarnation;
  webhook::OutboxOptions webhooks;
  // Only tests set it.
  PlantedFault planted_fault = PlantedFault::kNone;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_OPTIONS_H_
