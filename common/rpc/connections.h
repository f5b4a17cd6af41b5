// Which connections a server keeps and which it closes, so that strangers who connect and say
// nothing, or who connect very often, do not keep out those who work.
//
// A connection is silent until its first byte arrives. The number of silent connections is limited:
// when one more arrives, the peer that has the most of them loses its oldest one. So a client that
// speaks at once, as every gRPC client does, is always heard. Connections that have spoken are
// limited for each peer and in all; a new one is refused beyond that.
//
// A peer is a name: "uid 1000" or an IP address. Pure; one thread.
#ifndef MUSTER_COMMON_RPC_CONNECTIONS_H_
#define MUSTER_COMMON_RPC_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace muster {

struct ConnectionLimits {
  size_t silent = 1024;
  absl::Duration first_byte = absl::Seconds(10);
  // Of those that have spoken.
  size_t per_peer = 1024;
  size_t total = 4096;
  // The limits of a process that may have so many open files: each connection that has spoken needs
  // two, and a quarter is left to everything else.
  static ConnectionLimits For(size_t open_files);
};

class Connections {
 public:
  using Id = int64_t;

  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}

  // A new, silent connection. The result is another silent connection, or this one, that must be
  // closed and is forgotten.
  std::optional<Id> Arrived(Id id, const std::string& peer, absl::Time now);
  // The oldest silent connection of the peer that has the most: it must be closed and is forgotten.
  std::optional<Id> Shed();
  // The first byte has arrived. False: the connection must be closed, and is forgotten, because of
  // a limit.
  bool Spoke(Id id);
  // It has ended.
  void Ended(Id id);
  // A silent connection that has waited too long: it must be closed and is forgotten.
  std::optional<Id> Overdue(absl::Time now);
  // When there will be one. InfiniteFuture: there is no silent connection.
  absl::Time NextOverdue() const;

  size_t silent() const { return silent_.size(); }
  size_t spoken() const { return peers_of_spoken_.size(); }

 private:
  struct Peer {
    std::set<Id> silent;  // ids grow with time
    size_t spoken = 0;
  };

  void Forget(Id id);
  void RemoveIfEmpty(const std::string& peer);

  const ConnectionLimits limits_;
  absl::flat_hash_map<std::string, Peer> peers_;
  // When each arrived, and of which peer.
  std::map<Id, std::pair<absl::Time, std::string>> silent_;
  absl::flat_hash_map<Id, std::string> peers_of_spoken_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CONNECTIONS_H_
