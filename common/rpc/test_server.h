// A real gRPC server that answers every method, behind a listener that hands connections to gRPC;
// and calls of any method. For tests.
#ifndef MUSTER_COMMON_RPC_TEST_SERVER_H_
#define MUSTER_COMMON_RPC_TEST_SERVER_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/caller.h"

namespace muster {

// A call that reached the service.
struct SeenCall {
  std::string method;
  Caller caller;
};

class TestServer {
 public:
  // Starts a server at a free port of 127.0.0.1.
  static std::unique_ptr<TestServer> AtPort(std::shared_ptr<grpc::ServerCredentials> credentials);
  // Starts a server at a Unix socket.
  static std::unique_ptr<TestServer> AtPath(const std::string& path,
                                            std::shared_ptr<grpc::ServerCredentials> credentials);
  ~TestServer();

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  // The calls since the last TakeSeen.
  std::vector<SeenCall> TakeSeen() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class EveryMethod;

  TestServer(int listener, std::string address, int port,
             std::shared_ptr<grpc::ServerCredentials> credentials);

  const int listener_;
  const std::string address_;
  const int port_;
  absl::Mutex mutex_;
  std::vector<SeenCall> seen_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<EveryMethod> service_;
  std::unique_ptr<grpc::Server> server_;
  std::thread accepting_;
};

// A channel with a separate connection.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& address,
                                          std::shared_ptr<grpc::ChannelCredentials> credentials);

// Calls the method with an empty request, and returns the status. *server_certificate, if not null,
// gets the server's certificate as PEM.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  std::string* server_certificate = nullptr);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_TEST_SERVER_H_
