// The admission of a request before its method sees it, for all calls of clients:
// - A caller who may not make the call is refused before anything is parsed (common/rpc/access.h).
// - A request of more than Limits::request_bytes is refused before it is parsed: RESOURCE_EXHAUSTED
//   REQUEST_TOO_LARGE. A message may take 25 times the memory of its bytes.
// - A request that would become too many objects is refused: RESOURCE_EXHAUSTED TOO_MANY_PARTS
//   (CheckParts).
// - A request that is no message of its type is refused: INVALID_ARGUMENT REQUEST_UNREADABLE.
// - A request with a field beyond its limits is refused: CheckRequest.
// - A client whose version is too far from this program's is refused: CheckClientVersion.
//
// gRPC finds methods by their handlers. A service that derives from Admitting replaces the handlers
// of its generated base by handlers that get bytes. Streams of agents and workers are handled in
// peer_stream.h.
#ifndef MUSTER_COORDINATOR_SERVICE_ADMISSION_H_
#define MUSTER_COORDINATOR_SERVICE_ADMISSION_H_

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/message_allocator.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"
#include "common/version/version.h"
#include "coordinator/service/wire.h"

namespace muster::service {

// Checks that a client is served: its version may differ from `own`, the version of this program
// ("0.2.0"), by one minor version (docs/how-to/upgrade.md). The command line and the Python package
// send their version in gRPC's header user-agent, which begins with "muster/0.2.0". Other programs
// do not, and are served. FAILED_PRECONDITION CLIENT_TOO_OLD or CLIENT_TOO_NEW. Pure.
absl::Status CheckClientVersion(const std::string& user_agent, const std::string& own);

// Parses the bytes into the message, or returns why the request is refused. Pure.
absl::Status Admit(const grpc::ByteBuffer& bytes, google::protobuf::Message* request);

// The request, its bytes and the response of one call.
template <typename Request, typename Response>
class CallMessages final : public grpc::MessageHolder<grpc::ByteBuffer, Response> {
 public:
  CallMessages() {
    this->set_request(&bytes_);
    this->set_response(&response_);
  }
  void Release() override { delete this; }

  // Parses the request, and frees its bytes. Called once.
  absl::Status Admit() {
    absl::Status admitted = service::Admit(bytes_, &request_);
    bytes_.Clear();
    return admitted;
  }
  // The request. Valid until the call is done.
  const Request& parsed() const { return request_; }

 private:
  grpc::ByteBuffer bytes_;
  Request request_;
  Response response_;
};

// A stream that ends at once.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& why) { this->Finish(ToWire(why)); }
  void OnDone() override { delete this; }
};

// The base of a service. `Base`: a CallbackService. The subclass names each of its methods once, in
// its constructor. A test finds a forgotten method.
template <typename Base>
class Admitting : public Base {
 protected:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  // `authorize`: decides who may make which call.
  explicit Admitting(Authorizer authorize) : authorize_(std::move(authorize)) {}
  const Authorizer& authorize() const { return authorize_; }

  // Adds a call with one answer.
  template <typename Service, typename Request, typename Response>
  void Admits(const char* name,
              grpc::ServerUnaryReactor* (Service::*method)(grpc::CallbackServerContext*,
                                                           const Request*, Response*)) {
    auto* service = static_cast<Service*>(this);
    Admits<Request, Response>(name,
                              [service, method](auto* context, auto* request, auto* response) {
                                return (service->*method)(context, request, response);
                              });
  }
  // Adds a call with one answer, which a function gives. The function does not keep the request.
  template <typename Request, typename Response>
  void Admits(const char* name,
              std::function<grpc::ServerUnaryReactor*(grpc::CallbackServerContext*, const Request*,
                                                      Response*)>
                  answer) {
    using Messages = CallMessages<Request, Response>;
    class Allocator final : public grpc::MessageAllocator<grpc::ByteBuffer, Response> {
     public:
      Messages* AllocateMessages() override { return new Messages(); }
    };
    auto* handler = new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, Response>(
        [answer = std::move(answer), path = PathOf<Request>(name), this](
            grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
            Response* response) -> grpc::ServerUnaryReactor* {
          auto* messages = static_cast<Messages*>(context->GetRpcAllocatorState());
          absl::Status refused = Check(*context, path);
          if (refused.ok()) refused = messages->Admit();
          if (!refused.ok()) {
            auto* reactor = context->DefaultReactor();
            reactor->Finish(ToWire(refused));
            return reactor;
          }
          return answer(context, &messages->parsed(), response);
        });
    // One allocator for all servers, because it has no state.
    static Allocator& allocator = *new Allocator();
    handler->SetMessageAllocator(&allocator);
    this->MarkMethodCallback(IndexOf<Request>(name), handler);
  }

  // Adds a call with a stream of answers. The method does not keep the request.
  template <typename Service, typename Request, typename Response>
  void Admits(const char* name,
              grpc::ServerWriteReactor<Response>* (Service::*method)(grpc::CallbackServerContext*,
                                                                     const Request*)) {
    auto* service = static_cast<Service*>(this);
    this->MarkMethodCallback(
        IndexOf<Request>(name),
        new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, Response>(
            [service, method, path = PathOf<Request>(name), this](
                grpc::CallbackServerContext* context,
                const grpc::ByteBuffer* bytes) -> grpc::ServerWriteReactor<Response>* {
              Request request;
              absl::Status refused = Check(*context, path);
              if (refused.ok()) refused = Admit(*bytes, &request);
              if (!refused.ok()) return new RefusedStream<Response>(refused);
              return (service->*method)(context, &request);
            }));
  }

 private:
  // Checks that this caller may make the call, and that its program's version is served.
  absl::Status Check(const grpc::CallbackServerContext& context, const std::string& path) const {
    absl::Status refused = authorize_(CallerOf(context), path);
    const auto agent = context.client_metadata().find("user-agent");
    if (!refused.ok() || agent == context.client_metadata().end()) return refused;
    return CheckClientVersion(std::string(agent->second.data(), agent->second.size()), Version());
  }
  // The index of the method. Each file has one service, and the messages of its requests.
  template <typename Request>
  static int IndexOf(const char* name) {
    return Request::descriptor()->file()->service(0)->FindMethodByName(name)->index();
  }
  // The path of the method: "/muster.v1.JobService/GetJob".
  template <typename Request>
  static std::string PathOf(const char* name) {
    return absl::StrCat("/", Request::descriptor()->file()->service(0)->full_name(), "/", name);
  }

  const Authorizer authorize_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ADMISSION_H_
