// A listener for HTTP that answers one request on each connection. One thread does everything, and
// no peer can make it wait.
//
// The listener reads a connection until its request is complete, sends the response, and closes the
// connection. Sockets do not block, so a peer that sends or reads slowly, or not at all, delays no
// other peer. The number of connections and the time of each connection are limited. When a
// connection arrives beyond the limit, the peer with the most incomplete requests loses the oldest
// connection of these (common/rpc/connections.h). So a client that sends its whole request at once
// is always answered.
#ifndef MUSTER_COORDINATOR_WEB_LISTENER_H_
#define MUSTER_COORDINATOR_WEB_LISTENER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "common/rpc/address.h"
#include "common/rpc/connections.h"
#include "coordinator/limits/limits.h"
#include "coordinator/web/site.h"

namespace muster::web {

struct ListenerOptions {
  // The address. Port 0 chooses a free port. A Unix socket only accepts this process's user and
  // root.
  Address address;
  Hosts hosts = Hosts::kLocal;
  HttpLimits limits = kHttpLimits;
  // Makes the response to a request (Request::first_line). Runs on the listener's thread.
  std::function<Response(const std::string& first_line)> respond;
};

class Listener {
 public:
  // Starts to answer. Errors: those of Listen; RESOURCE_EXHAUSTED if there is no file descriptor.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(ListenerOptions options);
  // Closes all connections and ends the thread.
  ~Listener();

  // The address with the real port.
  const Address& address() const { return address_; }

 private:
  using Id = Connections::Id;
  struct Connection {
    process::Fd fd;
    Request request;
    // The response, when the request is complete.
    std::optional<Response> response;
    size_t sent = 0;
    // The time at which the connection is closed if the response is not sent.
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit Listener(ListenerOptions options);
  void Loop();
  absl::Duration Wait() const;
  void Accept();
  // Return true if the connection is over.
  bool Read(Id id, Connection* connection);
  bool Send(Connection* connection);
  // Closes a connection that is over.
  void Close(Id id);
  // Closes a connection that took too long, or must make room for another connection.
  void GiveUp(Id id);
  void CloseOverdue();

  const ListenerOptions options_;
  Address address_;
  process::Fd socket_;
  process::Fd wake_;

  // ---- Used on the thread only.
  Connections connections_;
  Id last_id_ = 0;
  std::map<Id, Connection> open_;
  // The time before which no connection is accepted, because there was no file descriptor.
  absl::Time accepts_from_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_LISTENER_H_
