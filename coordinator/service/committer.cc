#include "coordinator/service/committer.h"

#include <utility>

namespace muster::service {

Committer::Committer(store::Store* store, std::function<void(absl::Status)> done)
    : store_(store), done_(std::move(done)), thread_([this] { Run(); }) {}

Committer::~Committer() {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  thread_.join();
}

void Committer::Commit(const store::Batch& batch) {
  absl::MutexLock lock(&mutex_);
  batch_ = &batch;
}

void Committer::Run() {
  while (true) {
    const store::Batch* batch = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Committer::Woken));
      if (batch_ == nullptr) return;
      batch = std::exchange(batch_, nullptr);
    }
    done_(store_->Commit(*batch));
  }
}

}  // namespace muster::service
