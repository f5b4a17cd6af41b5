#include "client/api/cancellation.h"

#include <grpcpp/client_context.h>

namespace muster::client {

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.Changed();
  // TryCancel neither blocks nor calls back; the lock keeps the context alive.
  if (context_ != nullptr) context_->TryCancel();
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool Cancellation::WaitFor(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  return changed_.Await(mutex_, timeout,
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_; });
}

Cancellation::Scope::Scope(Cancellation* cancellation, grpc::ClientContext* context)
    : cancellation_(cancellation) {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->context_ = context;
  if (cancellation_->cancelled_) context->TryCancel();
}

Cancellation::Scope::~Scope() {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->context_ = nullptr;
}

}  // namespace muster::client
