// The only place where channels and servers are created: message limits, keepalive, health, and on
// which addresses a server may listen.
#ifndef MUSTER_COMMON_RPC_RPC_H_
#define MUSTER_COMMON_RPC_RPC_H_

#include <grpcpp/channel.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster {

// How a lost peer is noticed: if nothing arrives for `time`, the peer is asked; if it does not
// answer within `timeout`, the connection is closed.
struct KeepAlive {
  absl::Duration time = absl::Seconds(10);
  absl::Duration timeout = absl::Seconds(5);
  // Values with which a lost peer is noticed in about half of the lease. The timeout is never so
  // short that a busy peer counts as lost.
  static KeepAlive Within(absl::Duration lease);
};

// A channel to host:port. Connects when first used. Messages up to 16 MiB.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const KeepAlive& keepalive = {});

struct ServerOptions {
  // host:port; port 0 chooses a free one. Only loopback hosts unless allow_insecure.
  std::string listen = "127.0.0.1:0";
  // Allows to listen on other addresses than loopback without TLS.
  bool allow_insecure = false;
  // How the server notices lost clients. It does not limit how often clients may send keepalive
  // pings.
  KeepAlive keepalive = {};
};

// A running gRPC server with grpc.health.v1.Health. Thread-safe.
class Server {
 public:
  // Starts to serve. The services (callback services, at least one) must outlive the server.
  // INVALID_ARGUMENT: not of the form host:port, or not a loopback address without allow_insecure.
  // UNAVAILABLE: the port is in use.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Shuts down with no grace.
  ~Server();

  int port() const { return port_; }
  // host:port with the real port.
  const std::string& address() const { return address_; }
  // Sets the state of a service ("muster.v1.JobService") in grpc.health.v1.Health; it is SERVING at
  // first.
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls, waits up to `grace` for running ones, then cancels them; returns when all
  // are over.
  void Shutdown(absl::Duration grace);

 private:
  Server(std::unique_ptr<grpc::Server> server, std::string address, int port);

  std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const int port_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_RPC_H_
