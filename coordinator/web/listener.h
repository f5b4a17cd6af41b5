// Takes connections of HTTP and answers one request on each: one thread does everything, and no
// peer can make it wait.
//
// A connection is read until its request is complete, the request is answered, the response is
// sent, and the connection is closed. Sockets do not block, so a peer that sends or reads slowly,
// or not at all, delays nobody. The number of connections is limited, and so is the time that each
// may take: when one more arrives, the peer that has the most connections whose request is not
// complete loses its oldest one (common/rpc/connections.h). So a client that sends its whole
// request at once is always answered, whatever others do.
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
  // Port 0 chooses a free one. Over a Unix socket only this process's user and root are heard.
  Address address;
  Hosts hosts = Hosts::kLocal;
  HttpLimits limits = kHttpLimits;
  // Makes the response to a request (Request::first_line). Runs on the listener's thread.
  std::function<Response(const std::string& first_line)> respond;
};

class Listener {
 public:
  // Starts to answer. Errors: those of Listen; RESOURCE_EXHAUSTED: there is no file descriptor.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(ListenerOptions options);
  // Closes all connections and ends the thread.
  ~Listener();

  // With the real port.
  const Address& address() const { return address_; }

 private:
  using Id = Connections::Id;
  struct Connection {
    process::Fd fd;
    Request request;
    // Once the request is complete.
    std::optional<Response> response;
    size_t sent = 0;
    // The response is sent by then, or the connection is closed.
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit Listener(ListenerOptions options);
  void Loop();
  absl::Duration Wait() const;
  void Accept();
  // True: the connection is over.
  bool Read(Id id, Connection* connection);
  bool Send(Connection* connection);
  // Of one that is over.
  void Close(Id id);
  // Of one that took too long, or that is in the way of others.
  void GiveUp(Id id);
  void CloseOverdue();

  const ListenerOptions options_;
  Address address_;
  process::Fd socket_;
  process::Fd wake_;

  // ---- Of the thread.
  Connections connections_;
  Id last_id_ = 0;
  std::map<Id, Connection> open_;
  // No connection is accepted before, because there was no file descriptor for one.
  absl::Time accepts_from_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_LISTENER_H_
