// Accepts connections on listening sockets and hands each one over when its first byte has arrived.
//
// gRPC's own listeners stop for ever when the process has no file descriptor left, and they cannot
// tell who connects. This loop can: a connection over a Unix socket comes with the peer's user id,
// which is checked first. ConnectionLimits hold for all listeners together. If there is no file
// descriptor for a new connection, a silent one is closed for it, or it is closed itself, and the
// loop goes on.
//
// A connection that has been handed over is watched, by a copy of its descriptor, until it ends. It
// may be closed, by that copy, in favour of another one (connections.h).
#ifndef MUSTER_COMMON_RPC_ACCEPT_LOOP_H_
#define MUSTER_COMMON_RPC_ACCEPT_LOOP_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "common/rpc/connections.h"
#include "common/rpc/socket_peer.h"

namespace muster {

class AcceptLoop {
 public:
  struct Listener {
    process::Fd fd;  // does not block
    // Whether a connection of this peer may be handed over. Called on the loop's thread, once.
    std::function<bool(const SocketPeer&)> admits;
    // Takes a connected socket that does not block, and from which nothing has been read. Called on
    // the loop's thread.
    std::function<void(process::Fd, const SocketPeer&)> take;
  };

  // Starts the thread. RESOURCE_EXHAUSTED: there are too few file descriptors.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> Start(std::vector<Listener> listeners,
                                                           const ConnectionLimits& limits);
  // Ends the thread and closes the listeners and the connections that were not handed over.
  ~AcceptLoop();

 private:
  using Id = Connections::Id;
  struct Silent {
    process::Fd fd;
    size_t listener = 0;
    SocketPeer peer;
  };

  AcceptLoop(std::vector<Listener> listeners, const ConnectionLimits& limits)
      : listeners_(std::move(listeners)), connections_(limits) {}

  void Loop();
  void AcceptSome(size_t listener);
  void Take(process::Fd fd, size_t listener);
  // Makes room when there is no file descriptor for a connection that waits. False: there is none
  // to be had.
  bool Relieve(int listener);
  void OnSilent(Id id);
  void HandOver(Id id, Silent silent);
  void CloseSilent(Id id);
  // Of one that was handed over.
  void OnEnd(Id id);
  void CloseHandedOver(Id id);
  void Watch(int fd, uint64_t key, uint32_t events);
  void Warn(const std::string& what);

  std::vector<Listener> listeners_;
  Connections connections_;
  process::Fd epoll_;
  process::Fd wake_;
  // Given up for a moment to accept, and close, a connection for which there is no other.
  process::Fd reserve_;
  Id last_id_ = 0;
  absl::flat_hash_map<Id, Silent> silent_;
  // Copies of the descriptors of those that were handed over.
  absl::flat_hash_map<Id, process::Fd> handed_over_;
  absl::Time last_warning_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ACCEPT_LOOP_H_
