#include "common/rpc/plain_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/connections.h"

namespace muster {
namespace {

// What gRPC asks for each call, on the thread that reads the connection.
class Processor {
 public:
  static grpc_auth_metadata_processor For(std::shared_ptr<CallLimit> limit) {
    return {.process =
                [](void* state, grpc_auth_context* connection, const grpc_metadata*, size_t,
                   grpc_process_auth_metadata_done_cb done, void* call) {
                  const absl::Status begins = static_cast<Processor*>(state)->Begins(connection);
                  done(call, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(begins.code()),
                       begins.ok() ? nullptr : std::string(begins.message()).c_str());
                },
            .destroy = [](void* state) { delete static_cast<Processor*>(state); },
            .state = new Processor(std::move(limit))};
  }

 private:
  explicit Processor(std::shared_ptr<CallLimit> limit) : limit_(std::move(limit)) {}

  absl::Status Begins(grpc_auth_context* connection) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (!NumberOf(connection).has_value()) {
        grpc_auth_context_add_cstring_property(connection, kConnectionNumber,
                                               limit_->NewConnection(Transport::kTcp).c_str());
      }
    }
    return limit_->Begins(NumberOf(connection));
  }
  static std::optional<CallCounts::Connection> NumberOf(const grpc_auth_context* connection) {
    grpc_auth_property_iterator values =
        grpc_auth_context_find_properties_by_name(connection, kConnectionNumber);
    const grpc_auth_property* value = grpc_auth_property_iterator_next(&values);
    if (value == nullptr) return std::nullopt;
    return ConnectionNumber(absl::string_view(value->value, value->value_length));
  }

  const std::shared_ptr<CallLimit> limit_;
  // A connection's properties have no lock of their own, and gRPC may process two of its first
  // calls at once. Each call passes here, so the property is written before any handler of the
  // connection reads it, and never again.
  absl::Mutex mutex_;
};

// gRPC's C++ wrapper of these credentials takes no processor; the core library does.
class Plain final : public grpc::ServerCredentials {
 public:
  explicit Plain(std::shared_ptr<CallLimit> limit) : limit_(std::move(limit)) {}
  // It has one of its own.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    grpc_server_credentials* credentials = grpc_insecure_server_credentials_create();
    grpc_server_credentials_set_auth_metadata_processor(credentials, Processor::For(limit_));
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  const std::shared_ptr<CallLimit> limit_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> PlainCredentials(std::shared_ptr<CallLimit> limit) {
  return std::make_shared<Plain>(std::move(limit));
}

}  // namespace muster
