// The rules by which a server keeps or closes connections. Unknown clients that connect and say
// nothing, or connect very often, must not keep out clients that work. bench/results/floods.md
// shows the need for each rule.
//
// A connection is silent until its first byte arrives. The number of silent connections is limited:
// when there are too many, the peer with the most of them loses its oldest one. So a client that
// speaks at once, as every gRPC client does, is always heard.
//
// A connection that has spoken is on trial for the time that gRPC allows for its handshake. At the
// end of this time, gRPC closes a connection without a complete handshake. With TLS, the peer has
// shown its certificate by then. So a peer without a certificate can hold a connection only while
// the connection is on trial. When more connections have spoken than the limits allow, a connection
// on trial is closed:
// - over the limit of a peer: the oldest of this peer
// - over the limit of all: the oldest of the peer with the most of them
// A connection that has passed its trial is never closed. If all others have passed, the new
// connection is closed.
//
// Unix sockets and TCP have separate counts and limits. A peer is a name: "uid 1000", an IPv4
// address, or an IPv6 network (/64). Pure; one thread.
#ifndef MUSTER_COMMON_RPC_CONNECTIONS_H_
#define MUSTER_COMMON_RPC_CONNECTIONS_H_

#include <array>
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

// The connections of one kind by peer, to find the peer with the most.
class ConnectionsByPeer {
 public:
  // Adds a connection. Ids grow with time.
  void Add(const std::string& peer, int64_t id);
  // Removes a connection, if it is there.
  void Remove(const std::string& peer, int64_t id);

  std::optional<int64_t> OldestOf(const std::string& peer) const;
  // The oldest connection of the peer with the most connections. If several peers have the most,
  // the oldest connection of all these peers.
  std::optional<int64_t> OldestOfTheMost() const;

 private:
  std::map<std::string, std::set<int64_t>> ids_;
  // The number of connections of each peer, and its oldest id negated. So the last element belongs
  // to the result of OldestOfTheMost, however many peers there are.
  std::set<std::pair<size_t, int64_t>> order_;
};

struct ConnectionLimits {
  size_t silent = 1024;
  // The time for the first byte, and again for gRPC's handshake.
  absl::Duration handshake = absl::Seconds(10);
  // The time of a trial. Longer than the handshake, so that gRPC has closed connections without a
  // complete handshake.
  absl::Duration trial = absl::Seconds(11);
  // The limit for connections that have spoken over Unix sockets: a node of 4096 slots, and 1024
  // others.
  size_t local = 5120;
  // The limits for connections that have spoken over TCP.
  size_t per_peer = 1024;
  size_t total = 32768;
  // The limits of a process that may have `open_files` open files. Each connection needs two, and a
  // quarter is left for everything else. One peer never has more than a quarter of the total.
  static ConnectionLimits For(size_t open_files);
};

enum class Transport { kTcp, kLocal };

class Connections {
 public:
  using Id = int64_t;  // ids grow with time

  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}

  // Adds a new, silent connection. If there are too many, returns a silent connection (this one or
  // another), which must be closed and is forgotten.
  std::optional<Id> Arrived(Id id, Transport transport, const std::string& peer, absl::Time now);
  // Notes the first byte of a silent connection. If a limit is exceeded, returns a connection that
  // has spoken (this one or another), which must be closed and is forgotten.
  std::optional<Id> Spoke(Id id, absl::Time now);
  // Notes that a connection has ended.
  void Ended(Id id);
  // Returns a silent connection that has waited too long, which must be closed and is forgotten.
  std::optional<Id> Overdue(absl::Time now);
  // The time at which Overdue has a connection to return. InfiniteFuture: there is no silent
  // connection.
  absl::Time NextOverdue() const;

  size_t silent() const { return silent_.size(); }
  size_t spoken() const { return spoken_.size(); }

 private:
  struct Silent {
    absl::Time since;
    Transport transport;
    std::string peer;
  };
  struct Spoken {
    Transport transport;
    std::string peer;
    absl::Time trial_ends;
  };
  // The connections that have spoken over one transport.
  struct Group {
    absl::flat_hash_map<std::string, size_t> of_peer;
    size_t all = 0;
    ConnectionsByPeer on_trial;
  };

  Group& GroupOf(Transport transport) { return groups_[static_cast<size_t>(transport)]; }
  void ForgetSilent(Id id);
  void ForgetSpoken(Id id);
  void EndTrials(absl::Time now);

  const ConnectionLimits limits_;
  std::map<Id, Silent> silent_;
  ConnectionsByPeer silent_by_peer_;
  absl::flat_hash_map<Id, Spoken> spoken_;
  std::set<std::pair<absl::Time, Id>> trials_;  // by the end of the trial
  std::array<Group, 2> groups_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CONNECTIONS_H_
