#include "worker/train/background.h"

#include <utility>

#include "common/activity/activity.h"
#include "worker/train/guarded.h"

namespace muster::train {

Background::~Background() {
  bool running = false;
  {
    absl::MutexLock lock(&mutex_);
    running = running_;
  }
  if (running) {
    communicator_->Abort(
        absl::UnavailableError("the session of this rank ended while files were written"));
  }
  if (thread_.joinable()) thread_.join();
}

void Background::Start(Task task) {
  if (thread_.joinable()) thread_.join();
  {
    absl::MutexLock lock(&mutex_);
    running_ = true;
  }
  thread_ = std::thread([this, task = std::move(task), activity = activity::Current()]() mutable {
    const activity::Scope scope(activity);
    const absl::Status status = Guarded("writing files", task);
    task = nullptr;  // this frees the copy of the state
    absl::MutexLock lock(&mutex_);
    failure_ = status;
    running_ = false;
  });
}

absl::Status Background::Await() {
  bool running = false;
  {
    absl::MutexLock lock(&mutex_);
    running = running_;
  }
  if (running) reports_->Progress("waiting for files that are being written");
  if (thread_.joinable()) thread_.join();
  return failure();
}

absl::Status Background::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

}  // namespace muster::train
