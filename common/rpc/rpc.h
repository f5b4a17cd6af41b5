// The one place where channels and servers are made: message limits, keepalive, health, and who may
// listen where.
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

// A peer that is silently gone is noticed once nothing came for `time` and, asked, it did not
// answer for `timeout`.
struct KeepAlive {
  absl::Duration time = absl::Seconds(10);
  absl::Duration timeout = absl::Seconds(5);
  // In about half of the lease; the timeout is never so short that a busy peer is taken for one
  // that is gone.
  static KeepAlive Within(absl::Duration lease);
};

// A channel to host:port. Connects when first used. Messages up to 16 MiB.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address,
                                           const KeepAlive& keepalive = {});

struct ServerOptions {
  // host:port; port 0 chooses a free one. Only loopback hosts unless allow_insecure.
  std::string listen = "127.0.0.1:0";
  // Listen beyond loopback without TLS.
  bool allow_insecure = false;
  // Clients may ask as often as they like.
  KeepAlive keepalive = {};
};

// A running gRPC server with grpc.health.v1.Health. Thread-safe.
class Server {
 public:
  // Starts to serve. The services (callback services, at least one) must outlive the server.
  // INVALID_ARGUMENT: no host:port, or beyond loopback without allow_insecure. UNAVAILABLE: the
  // port is taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Shuts down with no grace.
  ~Server();

  int port() const { return port_; }
  // host:port with the port that was taken.
  const std::string& address() const { return address_; }
  // What grpc.health.v1.Health says of a service ("muster.v1.JobService"); SERVING from the start.
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
