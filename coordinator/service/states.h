// The state of a rank and of a node, as clients see it.
#ifndef MUSTER_COORDINATOR_SERVICE_STATES_H_
#define MUSTER_COORDINATOR_SERVICE_STATES_H_

#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

// `worker`: what is known of its process; null: nothing.
v1::RankStatus::State StateOf(const jobs::Rank& rank, const membership::Worker* worker);
// Whether it takes part in training: it has begun and is not done.
bool Trains(const jobs::Rank& rank);
// `attached`: whether its agent is.
v1::Node::State StateOf(const cluster::NodeView& view, bool attached);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_STATES_H_
