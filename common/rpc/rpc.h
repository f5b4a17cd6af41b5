// The only code that creates channels and servers. It decides message limits, keepalive, health,
// the addresses on which a server listens, and the connections that a server takes.
#ifndef MUSTER_COMMON_RPC_RPC_H_
#define MUSTER_COMMON_RPC_RPC_H_

#include <grpcpp/channel.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "common/process/fd.h"
#include "common/rpc/accept_loop.h"
#include "common/rpc/address.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/call_times.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"
#include "common/rpc/connections.h"
#include "common/rpc/sockets.h"

namespace muster {

// The times after which a lost peer is noticed. If nothing arrives for `time`, the peer is asked;
// if it does not answer within `timeout`, the connection is closed.
struct KeepAlive {
  absl::Duration time = absl::Seconds(10);
  absl::Duration timeout = absl::Seconds(5);
  // The values with which a lost peer is noticed in about half of the lease. The timeout is never
  // so short that a busy peer counts as lost.
  static KeepAlive Within(absl::Duration lease);
};

// The credentials with which a program with these files (all empty: none) connects to an address:
// TLS over TCP; none for a Unix socket. Errors: those of ClientTls.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const certs::TlsFiles& files);

// A channel to an address in the form of ToString(Address). Connects when first used. Messages up
// to 16 MiB. Null credentials: plain text.
std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address, const KeepAlive& keepalive = {},
    std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);

struct ServerOptions {
  // "unix:/PATH" or "HOST:PORT", at least one; port 0 chooses a free one. A Unix socket serves only
  // this process's user and root.
  std::vector<std::string> listen;
  // TCP connections are neither encrypted nor authenticated: whoever reaches the port may do
  // everything. The server listens on a port only with `insecure` or `tls`.
  bool insecure = false;
  // The files for TLS over TCP, with certificates on both sides. Not together with `insecure`. A
  // server without a port does not look at the files.
  certs::TlsFiles tls;
  // Decides about each call of a local user or a certificate.
  Authorizer authorize = [](const Caller&, const std::string&) { return absl::OkStatus(); };
  // Serves grpc.reflection.v1alpha.ServerReflection, if the program has it (reflection.h). Programs
  // such as grpcurl then need no copy of the protos.
  bool reflection = false;
  // The times after which lost clients are noticed. No limit for clients' own keepalive pings.
  KeepAlive keepalive = {};
  ConnectionLimits limits = {};
  CallLimits calls = {};
  // Called for each call with one request and one answer that has ended (call_times.h). Null: the
  // server measures no times.
  OnCallEnded on_call_ended = nullptr;

  // A server at a free port of this machine, without any protection: for tests.
  static ServerOptions InsecureLoopback() { return {.listen = {"127.0.0.1:0"}, .insecure = true}; }
};

// A running gRPC server with grpc.health.v1.Health. Thread-safe.
class Server {
 public:
  // Starts to serve. The services (callback services, at least one) must outlive the server.
  // INVALID_ARGUMENT: no address, an address of neither form, or an address of TCP without
  // `insecure` and `tls`. INVALID_ARGUMENT also for limits whose trial is not longer than the
  // handshake. UNAVAILABLE: the socket or the port is in use. Other errors: those of Listen,
  // AcceptLoop and ServerTls.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Shuts down with no grace.
  ~Server();

  // The addresses in the order of ServerOptions::listen, with the real ports.
  const std::vector<Address>& addresses() const { return addresses_; }
  // The first address, in the form for OpenChannel.
  std::string address() const { return ToString(addresses_.front()); }
  // Sets the state of a service ("muster.v1.JobService") in grpc.health.v1.Health. SERVING is the
  // state before the first call.
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls, waits up to `grace` for running calls, then cancels them. Returns when all
  // calls are over.
  void Shutdown(absl::Duration grace);

 private:
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  Server() = default;
  bool Admits(const SocketPeer& peer) const;
  void Take(process::Fd fd, const SocketPeer& peer);

  std::vector<Address> addresses_;
  // The acceptors of connections over the Unix socket, by the peer's user, and of TCP.
  std::map<uid_t, Acceptor> local_acceptors_;
  Acceptor tcp_acceptor_;
  std::unique_ptr<grpc::Server> server_;
  // Declared after the members to which it hands connections.
  std::unique_ptr<AcceptLoop> accept_loop_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_RPC_H_
