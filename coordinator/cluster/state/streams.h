// The owners of the open streams: agents and workers. Pure.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_STREAMS_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_STREAMS_H_

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/membership/membership.h"
#include "coordinator/membership/worker_id.h"

namespace muster::cluster {

class Streams {
 public:
  void AddAgent(membership::PeerStreamId stream, const std::string& node) {
    streams_[stream] = {.peer = node};
  }
  void AddWorker(membership::PeerStreamId stream, const membership::WorkerId& worker) {
    streams_[stream] = {.peer = worker};
  }
  // Unknown streams are ignored.
  void Remove(membership::PeerStreamId stream) { streams_.erase(stream); }

  // The node of the attached agent with this stream; null if there is no such agent. The result is
  // valid until the stream is removed.
  const std::string* NodeOf(membership::PeerStreamId stream) const {
    return Peer<std::string>(stream);
  }
  // The attached worker with this stream; null if there is no such worker. The result is valid
  // until the stream is removed.
  const membership::WorkerId* WorkerOf(membership::PeerStreamId stream) const {
    return Peer<membership::WorkerId>(stream);
  }
  // Records that this stream's agent reported on a process that is not on its node. True at the
  // first call. The stream must be known.
  bool FirstForeignProcess(membership::PeerStreamId stream) {
    return !std::exchange(streams_.at(stream).named_foreign_process, true);
  }

 private:
  struct Stream {
    // The node of an agent, or a worker's id.
    std::variant<std::string, membership::WorkerId> peer;
    bool named_foreign_process = false;
  };

  template <typename T>
  const T* Peer(membership::PeerStreamId stream) const {
    const auto known = streams_.find(stream);
    return known == streams_.end() ? nullptr : std::get_if<T>(&known->second.peer);
  }

  std::map<membership::PeerStreamId, Stream> streams_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_STREAMS_H_
