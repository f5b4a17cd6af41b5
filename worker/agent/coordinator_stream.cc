#include "worker/agent/coordinator_stream.h"

#include <utility>

#include "common/rpc/error.h"

namespace muster::agent {

std::unique_ptr<CoordinatorStream> CoordinatorStream::Open(
    const std::shared_ptr<grpc::Channel>& channel, Events events) {
  auto stream =
      std::unique_ptr<CoordinatorStream>(new CoordinatorStream(channel, std::move(events)));
  stream->stub_->async()->Attach(&stream->context_, stream.get());
  // Other threads than the reactor's write: because of the hold, OnDone is not called before the
  // stream has ended.
  stream->AddHold();
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

CoordinatorStream::CoordinatorStream(const std::shared_ptr<grpc::Channel>& channel, Events events)
    : stub_(v1::AgentService::NewStub(channel)), events_(std::move(events)) {}

CoordinatorStream::~CoordinatorStream() {
  context_.TryCancel();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done_));
}

void CoordinatorStream::Write(v1::AgentMessage message) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
}

void CoordinatorStream::OnReadDone(bool ok) {
  if (ok) {
    events_.on_directive(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  RemoveHold();
}

void CoordinatorStream::OnWriteDone(bool ok) {
  if (ok) events_.on_written();
}

void CoordinatorStream::OnDone(const grpc::Status& status) {
  events_.on_closed(FromGrpc(status));
  // The lock is held to the end, because the destructor may run as soon as it is released.
  absl::MutexLock lock(&mutex_);
  done_ = true;
}

}  // namespace muster::agent
