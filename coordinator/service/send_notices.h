// Tells the jobs of a node that is emptied to save and to end, without waiting for the store.
#ifndef MUSTER_COORDINATOR_SERVICE_SEND_NOTICES_H_
#define MUSTER_COORDINATOR_SERVICE_SEND_NOTICES_H_

#include <string>

#include "coordinator/cluster/cluster.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/session.h"

namespace muster::service {

// Only on the engine's thread; also in Engine::Aside.
inline void SendNotices(const Engine& engine, const PeerStreams& streams,
                        const cluster::Cluster& cluster, const std::string& node,
                        const std::string& reason) {
  const auto store = engine.trouble().has_value() ? cluster::StoreState::kInTrouble
                                                  : cluster::StoreState::kWorks;
  for (const auto& notice : cluster.overview().PreemptionNotices(node, reason, store)) {
    if (PeerStream* stream = streams.Find(notice.session)) stream->Send(notice.order);
  }
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SEND_NOTICES_H_
