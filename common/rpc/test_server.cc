#include "common/rpc/test_server.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/deadline.h"
#include "common/steady/test_bound.h"

namespace muster {

class TestServer::EveryMethod : public grpc::CallbackGenericService {
 public:
  explicit EveryMethod(TestServer* server) : server_(server) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    {
      absl::MutexLock lock(&server_->mutex_);
      server_->seen_.push_back({context->method(), CallerOf(*context)});
    }
    class Answer : public grpc::ServerGenericBidiReactor {
     public:
      Answer() { StartWriteAndFinish(&empty_, grpc::WriteOptions(), grpc::Status::OK); }
      void OnDone() override { delete this; }

     private:
      const grpc::ByteBuffer empty_{nullptr, 0};
    };
    return new Answer();
  }

 private:
  TestServer* const server_;
};

std::unique_ptr<TestServer> TestServer::AtPort(
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  const int port = ntohs(address.sin_port);
  return std::unique_ptr<TestServer>(
      new TestServer(listener, absl::StrCat("127.0.0.1:", port), port, std::move(credentials)));
}

std::unique_ptr<TestServer> TestServer::AtPath(
    const std::string& path, std::shared_ptr<grpc::ServerCredentials> credentials) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, SOMAXCONN) != 0) {
    std::abort();
  }
  return std::unique_ptr<TestServer>(
      new TestServer(listener, absl::StrCat("unix:", path), 0, std::move(credentials)));
}

TestServer::TestServer(int listener, std::string address, int port,
                       std::shared_ptr<grpc::ServerCredentials> credentials)
    : listener_(listener),
      address_(std::move(address)),
      port_(port),
      service_(std::make_unique<EveryMethod>(this)) {
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(service_.get());
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  server_ = builder.BuildAndStart();
  accepting_ = std::thread([this, acceptor = std::move(acceptor)] {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = -1;
      connection.fd = fd;
      acceptor->HandleNewConnection(&connection);
    }
  });
}

TestServer::~TestServer() {
  shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  close(listener_);
  server_->Shutdown(DeadlineAfter(absl::ZeroDuration()));
  server_->Wait();
}

std::vector<SeenCall> TestServer::TakeSeen() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(seen_, {});
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address,
                                          std::shared_ptr<grpc::ChannelCredentials> credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  std::string* server_certificate) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(kTestBound));
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  grpc::Status result;
  absl::Notification done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) {
                   result = std::move(status);
                   done.Notify();
                 });
  done.WaitForNotification();  // the call's deadline limits the wait
  if (server_certificate != nullptr && context.auth_context() != nullptr) {
    const auto pem = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (!pem.empty()) server_certificate->assign(pem.front().data(), pem.front().size());
  }
  return result;
}

}  // namespace muster
