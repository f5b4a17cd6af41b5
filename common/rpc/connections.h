// Which connections a server keeps and which it closes, so that strangers who connect and say
// nothing, or who connect very often, do not keep out those who work. bench/results/strangers.md
// shows what each rule is needed for.
//
// A connection is silent until its first byte arrives. The number of silent connections is limited:
// when one more arrives, the peer that has the most of them loses its oldest one. So a client that
// speaks at once, as every gRPC client does, is always heard.
//
// A connection that has spoken is on trial for as long as gRPC gives it for its handshake. gRPC
// closes it at the end of this time, unless the handshake is complete; with TLS, the peer has then
// shown its certificate. So whoever has none can hold a connection only while it is on trial. If
// one more connection speaks than the limits allow, one that is on trial is closed for it: the
// oldest of the same peer, or, if the limit of all is reached, the oldest of the peer that has the
// most of them. One that has passed its trial is never closed. If all have, the new one is closed.
//
// Connections over a Unix socket are counted apart from those over TCP, and neither can use the
// room of the others. A peer is a name: "uid 1000", an IPv4 address, or an IPv6 network (/64).
// Pure; one thread.
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

// Which peer has the most connections of one kind.
class Crowd {
 public:
  // Ids grow with time.
  void Add(const std::string& peer, int64_t id);
  // Nothing, if it is not there.
  void Remove(const std::string& peer, int64_t id);

  std::optional<int64_t> OldestOf(const std::string& peer) const;
  // The oldest one of the peer that has the most. Of peers that have as many, the oldest of all.
  std::optional<int64_t> OldestOfTheMost() const;

 private:
  std::map<std::string, std::set<int64_t>> ids_;
  // How many each peer has, and its oldest one negated: the last element is what OldestOfTheMost
  // looks for, however many peers there are.
  std::set<std::pair<size_t, int64_t>> order_;
};

struct ConnectionLimits {
  size_t silent = 1024;
  // The time for the first byte, and again for gRPC's handshake.
  absl::Duration handshake = absl::Seconds(10);
  // Longer than the handshake, so that gRPC has closed what has not completed it.
  absl::Duration trial = absl::Seconds(11);
  // Of those that have spoken over Unix sockets: a node of 4096 slots, and 1024 others.
  size_t local = 5120;
  // Of those that have spoken over TCP.
  size_t per_peer = 1024;
  size_t total = 32768;
  // The limits of a process that may have so many open files: each connection needs two, and a
  // quarter is left to everything else. One peer never has more than a quarter of the total.
  static ConnectionLimits For(size_t open_files);
};

enum class Transport { kTcp, kLocal };

class Connections {
 public:
  using Id = int64_t;  // ids grow with time

  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}

  // A new, silent connection. The result is another silent connection, or this one, that must be
  // closed and is forgotten.
  std::optional<Id> Arrived(Id id, Transport transport, const std::string& peer, absl::Time now);
  // The first byte of a silent connection has arrived. The result is another one that has spoken,
  // or this one, that must be closed and is forgotten because of a limit.
  std::optional<Id> Spoke(Id id, absl::Time now);
  // It has ended.
  void Ended(Id id);
  // A silent connection that has waited too long: it must be closed and is forgotten.
  std::optional<Id> Overdue(absl::Time now);
  // When there will be one. InfiniteFuture: there is no silent connection.
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
  // Of those that have spoken over one transport.
  struct Group {
    absl::flat_hash_map<std::string, size_t> of_peer;
    size_t all = 0;
    Crowd on_trial;
  };

  Group& GroupOf(Transport transport) { return groups_[static_cast<size_t>(transport)]; }
  void ForgetSilent(Id id);
  void ForgetSpoken(Id id);
  void EndTrials(absl::Time now);

  const ConnectionLimits limits_;
  std::map<Id, Silent> silent_;
  Crowd silent_crowd_;
  absl::flat_hash_map<Id, Spoken> spoken_;
  std::set<std::pair<absl::Time, Id>> trials_;  // when each ends
  std::array<Group, 2> groups_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CONNECTIONS_H_
