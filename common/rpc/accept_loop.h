// Accepts connections on listening sockets, and hands each connection over after its first byte.
//
// gRPC's own listeners stop for ever when the process has no file descriptor left. They also cannot
// tell who connects. This loop first checks the user id of the peer of a Unix socket.
// ConnectionLimits hold for all listeners together. Each connection takes two file descriptors, one
// of them a copy. Without two free descriptors, new connections wait in the kernel's queue. The
// listener rests for a moment then; the loop does not.
//
// The loop watches a connection after handing it over, by the copy of its descriptor, until the
// connection ends. The loop may close it, by the copy, in favour of another connection
// (connections.h).
#ifndef MUSTER_COMMON_RPC_ACCEPT_LOOP_H_
#define MUSTER_COMMON_RPC_ACCEPT_LOOP_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "common/rpc/connections.h"
#include "common/rpc/sockets.h"

namespace muster {

class AcceptLoop {
 public:
  struct Listener {
    process::Fd fd;  // does not block
    // Returns whether a connection of this peer may be handed over. Called on the loop's thread,
    // once.
    std::function<bool(const SocketPeer&)> admits;
    // Takes a connected socket that does not block. Nothing has been read from the socket. Called
    // on the loop's thread.
    std::function<void(process::Fd, const SocketPeer&)> take;
  };

  // Starts the thread. `rest`: the time for which a listener accepts nothing after a lack of file
  // descriptors. RESOURCE_EXHAUSTED: there are too few file descriptors at the start.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> Start(
      std::vector<Listener> listeners, const ConnectionLimits& limits,
      absl::Duration rest = absl::Milliseconds(100));
  // Ends the thread and closes the listeners and the connections that were not handed over.
  ~AcceptLoop();

 private:
  using Id = Connections::Id;
  struct Connection {
    process::Fd copy;
    // Empty after the connection is handed over.
    process::Fd fd;
    size_t listener = 0;
    SocketPeer peer;
  };

  AcceptLoop(std::vector<Listener> listeners, const ConnectionLimits& limits, absl::Duration rest)
      : rest_(rest), listeners_(std::move(listeners)), connections_(limits) {}

  void Loop();
  // The milliseconds until the loop has something to do without an event.
  int Timeout() const;
  void AcceptSome(size_t listener);
  void Rest(size_t listener);
  void EndRests();
  void Take(Connection connection);
  // Handles an event of a connection, unless another event has closed the connection.
  void OnEvent(Id id);
  void HandOver(Id id);
  void Close(Id id);
  void Watch(int fd, uint64_t key, uint32_t events);
  void WatchFor(int fd, uint64_t key, uint32_t events);
  void Warn(const std::string& what);

  const absl::Duration rest_;
  std::vector<Listener> listeners_;
  // The times at which resting listeners accept again, by listener.
  std::map<size_t, absl::Time> resting_;
  Connections connections_;
  process::Fd epoll_;
  process::Fd wake_;
  Id last_id_ = 0;
  absl::flat_hash_map<Id, Connection> open_;
  absl::Time last_warning_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ACCEPT_LOOP_H_
