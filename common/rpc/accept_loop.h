// Accepts connections on listening sockets and hands each one over when its first byte has arrived.
//
// gRPC's own listeners stop for ever when the process has no file descriptor left, and they cannot
// tell who connects. This loop can: a connection over a Unix socket comes with the peer's user id,
// which is checked first. ConnectionLimits hold for all listeners together. Each connection takes
// two file descriptors, one of them a copy. If there are not two, new connections wait in the
// kernel's queue, and the listener rests for a moment; the loop does not.
//
// A connection that has been handed over is watched, by the copy of its descriptor, until it ends.
// It may be closed, by the copy, in favour of another one (connections.h).
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
    // Whether a connection of this peer may be handed over. Called on the loop's thread, once.
    std::function<bool(const SocketPeer&)> admits;
    // Takes a connected socket that does not block, and from which nothing has been read. Called on
    // the loop's thread.
    std::function<void(process::Fd, const SocketPeer&)> take;
  };

  // Starts the thread. `rest`: how long a listener accepts nothing after there were too few file
  // descriptors. RESOURCE_EXHAUSTED: there are too few of them now.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> Start(
      std::vector<Listener> listeners, const ConnectionLimits& limits,
      absl::Duration rest = absl::Milliseconds(100));
  // Ends the thread and closes the listeners and the connections that were not handed over.
  ~AcceptLoop();

 private:
  using Id = Connections::Id;
  struct Connection {
    process::Fd copy;
    // None, once the connection is handed over.
    process::Fd fd;
    size_t listener = 0;
    SocketPeer peer;
  };

  AcceptLoop(std::vector<Listener> listeners, const ConnectionLimits& limits, absl::Duration rest)
      : rest_(rest), listeners_(std::move(listeners)), connections_(limits) {}

  void Loop();
  // Milliseconds until the loop has something to do, unless an event comes before.
  int Timeout() const;
  void AcceptSome(size_t listener);
  void Rest(size_t listener);
  void EndRests();
  void Take(Connection connection);
  // Something has happened to a connection, unless another event has closed it.
  void OnEvent(Id id);
  void HandOver(Id id);
  void Close(Id id);
  void Watch(int fd, uint64_t key, uint32_t events);
  void WatchFor(int fd, uint64_t key, uint32_t events);
  void Warn(const std::string& what);

  const absl::Duration rest_;
  std::vector<Listener> listeners_;
  // When those that rest accept again.
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
