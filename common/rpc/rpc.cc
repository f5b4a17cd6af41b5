#include "common/rpc/rpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/deadline.h"
#include "common/rpc/sockets.h"
#include "common/rpc/tls.h"
#include "common/status/status.h"
#include "common/version/version.h"

namespace muster {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
// The shortest time between pings without other data. Pings are never too frequent with it.
constexpr int kMinPingIntervalMs = 10;

// The most bytes that gRPC buffers for all connections together.
constexpr size_t kMostMemory = 256 << 20;
// The most calls of one connection at a time, without calls that the client has reset
// (call_limit.h).
constexpr int kMostStreams = 1000;
// The time after which a connection without a call is closed. A client opens another connection
// with its next call.
constexpr absl::Duration kLongestIdle = absl::Minutes(2);

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Removes the reflection service. A plug-in of gRPC's reflection library adds the service to every
// server of a program that is linked with the library.
class NoReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

}  // namespace

KeepAlive KeepAlive::Within(absl::Duration lease) {
  KeepAlive keepalive;
  keepalive.time = std::min(keepalive.time, lease / 4);
  keepalive.timeout = std::min(keepalive.timeout, std::max(absl::Seconds(1), lease / 4));
  return keepalive;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const certs::TlsFiles& files) {
  ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const bool none = files.certificate.empty() && files.key.empty() && files.ca.empty();
  if (parsed.local() || none) return grpc::InsecureChannelCredentials();
  return ClientTls(files);
}

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, const KeepAlive& keepalive,
                                           std::shared_ptr<grpc::ChannelCredentials> credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix(std::string("muster/") + Version());
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(keepalive.time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(keepalive.timeout));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // The time limit of one attempt to connect, in fact. An attempt takes longer on a busy machine.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // The pause after a refused attempt, plus or minus a fifth. Agents and workers have one lease, 1
  // s or more, to attach to a restarted coordinator, and the lease runs while the coordinator is
  // down.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // Two clients in one process (in tests) must not share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A cluster's own traffic never goes through a proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (credentials == nullptr) credentials = grpc::InsecureChannelCredentials();
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  if (options.listen.empty()) {
    return absl::InvalidArgumentError("a server without an address; expected at least one");
  }
  if (options.limits.trial <= options.limits.handshake) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a trial of ", absl::FormatDuration(options.limits.trial), " and a handshake of ",
        absl::FormatDuration(options.limits.handshake),
        ": a connection could pass its trial without a handshake; expected a longer trial"));
  }
  std::unique_ptr<Server> self(new Server());
  std::vector<AcceptLoop::Listener> listeners;
  bool tcp = false;
  for (const std::string& text : options.listen) {
    ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
    tcp = tcp || !address.local();
    if (!address.local() && !options.insecure && options.tls.certificate.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("listen address '", text,
                       "': connections over TCP would be neither encrypted nor authenticated, and "
                       "whoever reaches the port could run programs as this user; give "
                       "--tls-certificate, --tls-key and --tls-ca (`muster certs` makes them), or "
                       "--insecure on a network that is closed to others"));
    }
    ASSIGN_OR_RETURN(ListeningSocket socket, Listen(address));
    self->addresses_.push_back(std::move(socket.address));
    listeners.push_back(
        {.fd = std::move(socket.fd),
         .admits = [raw = self.get()](const SocketPeer& peer) { return raw->Admits(peer); },
         .take = [raw = self.get()](process::Fd fd,
                                    const SocketPeer& peer) { raw->Take(std::move(fd), peer); }});
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(kMostMemory));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive.time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive.timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  if (!options.reflection) builder.SetOption(std::make_unique<NoReflection>());
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Millis(kLongestIdle));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Millis(options.limits.handshake));
  const auto acceptor = [&builder](std::shared_ptr<grpc::ServerCredentials> credentials) {
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    return builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD,
                                                                std::move(credentials));
  };
  const auto call_limit = std::make_shared<CallLimit>(options.calls);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(CallLimit::Interceptors(call_limit));
  if (options.on_call_ended) interceptors.push_back(TimeCalls(options.on_call_ended));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (const uid_t uid : {geteuid(), uid_t{0}}) {
    auto credentials = grpc::experimental::LocalServerCredentials(UDS);
    credentials->SetAuthMetadataProcessor(
        CallerProcessor::ForUser(uid, options.authorize, call_limit));
    self->local_acceptors_.try_emplace(uid, acceptor(std::move(credentials)));
  }
  // A server without a port ignores the files: the environment may name those of an operator.
  if (tcp && options.insecure) {
    self->tcp_acceptor_ = acceptor(PlainCredentials(call_limit));
  } else if (tcp) {
    ASSIGN_OR_RETURN(auto credentials, ServerTls(options.tls, options.authorize, call_limit));
    self->tcp_acceptor_ = acceptor(std::move(credentials));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  self->server_ = builder.BuildAndStart();
  if (self->server_ == nullptr) return absl::InternalError("the gRPC server does not start");
  ASSIGN_OR_RETURN(self->accept_loop_, AcceptLoop::Start(std::move(listeners), options.limits));
  return self;
}

bool Server::Admits(const SocketPeer& peer) const {
  return peer.local ? local_acceptors_.contains(peer.uid) : tcp_acceptor_ != nullptr;
}

void Server::Take(process::Fd fd, const SocketPeer& peer) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = std::move(fd).Release();
  const Acceptor& acceptor = peer.local ? local_acceptors_.at(peer.uid) : tcp_acceptor_;
  acceptor->HandleNewConnection(&connection);
}

Server::~Server() {
  Shutdown(absl::ZeroDuration());
  for (const Address& address : addresses_) {
    if (address.local()) unlink(address.path.c_str());
  }
}

void Server::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Server::Shutdown(absl::Duration grace) {
  accept_loop_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(DeadlineAfter(grace));
  server_->Wait();
}

}  // namespace muster
