// Calls to a coordinator, by the methods of its generated stubs. The calls continue after a broken
// connection. Errors of every call, besides the errors of its service:
// - UNAVAILABLE: the coordinator cannot be reached, or does not answer in time; the message has its
//   address.
// - CANCELLED: the caller's Cancellation ended the call.
#ifndef MUSTER_CLIENT_API_CONNECTION_H_
#define MUSTER_CLIENT_API_CONNECTION_H_

#include <google/protobuf/message.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/api/cancellation.h"
#include "common/ids/ids.h"
#include "common/rpc/deadline.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {

// The retries of one call. Not thread-safe.
class Retries {
 public:
  // The connection of `channel` may be broken for `retry_for`. `cancellation` may be null; it must
  // outlive this object.
  Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration retry_for,
          Cancellation* cancellation);
  Retries(const Retries&) = delete;
  Retries& operator=(const Retries&) = delete;

  // The caller's cancellation. A caller that gave none has a cancellation that nobody uses.
  Cancellation* cancellation() const { return cancellation_; }
  // Notes that the coordinator has answered: after the next break the whole time is available
  // again.
  void Answered() { broken_since_ = absl::InfiniteFuture(); }
  // Waits a moment after an attempt that ended with `broken`. The channel connects meanwhile if it
  // can: gRPC works on a connection only while somebody waits for it. OK: try again. `broken`: the
  // time is over. DEADLINE_EXCEEDED, with the message of `broken`: `deadline` (a time of
  // SteadyNow()) has passed. CANCELLED: by the caller.
  absl::Status Await(const absl::Status& broken, absl::Time deadline = absl::InfiniteFuture());

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Duration retry_for_;
  Cancellation never_;
  Cancellation* const cancellation_;
  // The time since which the connection has been broken; InfiniteFuture while it works.
  absl::Time broken_since_ = absl::InfiniteFuture();
};

// Checks that all texts of the message are UTF-8. Does not look at maps. Pure. INVALID_ARGUMENT: a
// text is not UTF-8; the message names the field and the text.
absl::Status CheckTexts(const google::protobuf::Message& request);

// The times of a call that follows a job. If the coordinator cannot be reached at the start, the
// call fails at once.
struct StreamOptions {
  // The time to try again after a broken connection, before the call fails with UNAVAILABLE.
  absl::Duration retry_for = absl::Seconds(30);
  // The time from the start of the call after which the call ends with DEADLINE_EXCEEDED. Changes
  // of the system's date have no effect on this time.
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// The repeats of a call that changes something, while the connection is broken. A repeat has the
// same request id, so the call acts exactly once in all cases. If the coordinator cannot be reached
// at the start, the call fails at once. A call that only reads is repeated in the same way. Such a
// call takes 30 s at most, whether the connection breaks or the coordinator hangs.
struct RetryOptions {
  absl::Duration retry_for = absl::Seconds(30);
  // May be null. Must outlive the call.
  Cancellation* cancellation = nullptr;
};

// A change of a running job or of a node.
struct SteerOptions {
  RetryOptions retry;
  // The number of optimizer steps after which the change acts; absent: at once.
  std::optional<uint64_t> at_step;
  // The person or program that asks, for the history.
  std::string requested_by;
};

// Thread-safe. Calls block.
class Connection {
 public:
  // Connects with the first call.
  Connection(const std::string& address, std::shared_ptr<grpc::Channel> channel)
      : address_(address), channel_(std::move(channel)) {}

  template <typename Stub, typename Request, typename Response>
  using Unary = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <typename Stub, typename Request, typename T>
  using Streamed = std::unique_ptr<grpc::ClientReader<T>> (Stub::*)(grpc::ClientContext*,
                                                                    const Request&);

  const std::string& address() const { return address_; }

  // Makes a call that changes nothing.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Read(Unary<Stub, Request, Response> rpc, const Request& request) {
    return Call(rpc, request, {.retry_for = kCallTimeout}, SteadyNow() + kCallTimeout);
  }
  // Makes a call that changes something: all its repeats have one new request id.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Change(Unary<Stub, Request, Response> rpc, Request request,
                                  const RetryOptions& options) {
    request.set_request_id(NewUuid());
    return Call(rpc, request, options, absl::InfiniteFuture());
  }
  // Makes a call as Change does, with the options that the request has fields for.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Steer(Unary<Stub, Request, Response> rpc, Request request,
                                 const SteerOptions& options) {
    request.set_requested_by(options.requested_by);
    if constexpr (requires { request.set_at_step(0); }) {
      if (options.at_step.has_value()) request.set_at_step(*options.at_step);
    }
    return Change(rpc, std::move(request), options.retry);
  }
  // Passes each message to `take` (which returns false to stop) until the stream ends. Opens the
  // stream again with `request`, which `take` may change, in two cases, until `deadline` of
  // SteadyNow():
  // - The connection breaks.
  // - The stream ends with OK, but `finished` says that more messages must come.
  template <typename Stub, typename Request, typename T>
  absl::Status ReadStream(
      Streamed<Stub, Request, T> rpc, const Request& request, const StreamOptions& options,
      absl::Time deadline, const std::type_identity_t<std::function<bool(const T&)>>& take,
      const std::function<bool()>& finished = [] { return true; });

 protected:
  using Attempt = std::function<grpc::Status(grpc::ClientContext*)>;
  // The longest time for a call: a coordinator that has not answered by then hangs.
  static constexpr absl::Duration kCallTimeout = absl::Seconds(30);

  // Makes one unary call with its deadline. `cancellation` may be null.
  absl::Status CallOnce(const google::protobuf::Message& request, const Attempt& attempt,
                        Cancellation* cancellation, absl::Duration timeout) const;
  // Returns whether the coordinator can be reached. Waits for the answer to the first attempt to
  // connect.
  bool Reachable() const;
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  // Makes a unary call, and repeats it while the connection is broken, if the coordinator could be
  // reached at the start.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Unary<Stub, Request, Response> rpc, const Request& request,
                                const RetryOptions& options, absl::Time deadline) {
    Stub stub(channel_);
    Response response;
    RETURN_IF_ERROR(Repeat(
        request,
        [&](grpc::ClientContext* context) { return (stub.*rpc)(context, request, &response); },
        options, deadline));
    return response;
  }
  absl::Status Repeat(const google::protobuf::Message& request, const Attempt& attempt,
                      const RetryOptions& options, absl::Time deadline) const;
  // The status that callers get. Has the address if the coordinator was not reached.
  absl::Status CallStatus(const grpc::Status& status) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

template <typename Stub, typename Request, typename T>
absl::Status Connection::ReadStream(Streamed<Stub, Request, T> rpc, const Request& request,
                                    const StreamOptions& options, absl::Time deadline,
                                    const std::type_identity_t<std::function<bool(const T&)>>& take,
                                    const std::function<bool()>& finished) {
  Stub stub(channel_);
  Retries retries(channel_, options.retry_for, options.cancellation);
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(deadline - SteadyNow()));
    const Cancellation::Scope scope(retries.cancellation(), &context);
    const auto reader = (stub.*rpc)(&context, request);
    T message;
    while (reader->Read(&message)) {
      retries.Answered();
      if (take(message)) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    absl::Status status = CallStatus(reader->Finish());
    if (retries.cancellation()->cancelled()) return absl::CancelledError("interrupted");
    if (status.ok()) {
      if (finished()) return status;
      status = absl::UnavailableError(
          absl::StrCat("the coordinator at ", address_, " ended the stream before its end"));
    }
    if (!absl::IsUnavailable(status)) return status;
    RETURN_IF_ERROR(retries.Await(status, deadline));
  }
}

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CONNECTION_H_
