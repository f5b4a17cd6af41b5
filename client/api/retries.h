// How long a call is tried again while the connection to the coordinator is broken.
#ifndef MUSTER_CLIENT_API_RETRIES_H_
#define MUSTER_CLIENT_API_RETRIES_H_

#include <grpcpp/channel.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/api/cancellation.h"

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

  // The cancellation of the caller; if that is null, one that is never cancelled.
  Cancellation* cancellation() const { return cancellation_; }
  // The coordinator has answered: after the next break the whole time is available again.
  void Answered() { broken_since_ = absl::InfiniteFuture(); }
  // Call it when an attempt has ended with `broken`. Waits a moment, in which the channel connects
  // if it can: gRPC works on a connection only while somebody waits for it. OK: try again.
  // `broken`: the time is over. DEADLINE_EXCEEDED, with the message of `broken`: `deadline` of
  // SteadyNow() is over. CANCELLED: by the caller.
  absl::Status Await(const absl::Status& broken, absl::Time deadline = absl::InfiniteFuture());

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Duration retry_for_;
  Cancellation never_;
  Cancellation* const cancellation_;
  // Since when the connection has been broken; InfiniteFuture while it works.
  absl::Time broken_since_ = absl::InfiniteFuture();
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_RETRIES_H_
