// One AgentService.Attach stream: from its opening to its end. A new attempt is a new object.
#ifndef MUSTER_WORKER_AGENT_COORDINATOR_STREAM_H_
#define MUSTER_WORKER_AGENT_COORDINATOR_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster::agent {

class CoordinatorStream : private grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentDirective> {
 public:
  // Called on gRPC's threads. Directives come one at a time; on_closed is the last call.
  struct Events {
    std::function<void(v1::AgentDirective)> on_directive;
    // The message was written; the next one may be.
    std::function<void()> on_written;
    std::function<void(absl::Status)> on_closed;
  };

  static std::unique_ptr<CoordinatorStream> Open(const std::shared_ptr<grpc::Channel>& channel,
                                                 Events events);
  // Cancels what is open and returns after on_closed.
  ~CoordinatorStream() override;

  // Call it only after on_written of the message before. After the end of the stream the message is
  // dropped.
  void Write(v1::AgentMessage message);

 private:
  CoordinatorStream(const std::shared_ptr<grpc::Channel>& channel, Events events);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::unique_ptr<v1::AgentService::Stub> stub_;
  const Events events_;
  grpc::ClientContext context_;
  v1::AgentDirective incoming_;
  v1::AgentMessage outgoing_;

  absl::Mutex mutex_;
  // The stream can no longer be written to.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_COORDINATOR_STREAM_H_
