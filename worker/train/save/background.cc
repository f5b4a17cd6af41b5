#include "worker/train/save/background.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/shard.h"
#include "worker/memory/available.h"
#include "worker/train/ranks/guarded.h"

namespace muster::train {

Background::~Background() {
  if (running()) {
    communicator_->Abort(
        absl::UnavailableError("the session of this rank ended while files were written"));
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<uint64_t> RanksOfNode(comm::Communicator& communicator) {
  const std::string own = checkpoint::NodeId();
  ASSIGN_OR_RETURN(const auto nodes, checkpoint::GatherTexts(communicator, own, "nodes", 0));
  return static_cast<uint64_t>(std::count(nodes.begin(), nodes.end(), own));
}

absl::StatusOr<checkpoint::State> Background::Copy(const checkpoint::State& state) {
  const int rank = communicator_->rank();
  const auto bytes = static_cast<uint64_t>(checkpoint::BytesWritten(state, rank));
  const uint64_t more = bytes - std::min(bytes, copied_);
  const uint64_t available = memory::AvailableBytes();
  if (more > 0 && more > available / ranks_of_node_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a copy of this rank's state needs ", more, " bytes, and ", ranks_of_node_,
                     " ranks of this node share ", available, " available bytes"));
  }
  auto copy = Guarded("copying this rank's state", [&]() -> absl::StatusOr<checkpoint::State> {
    return checkpoint::Snapshot(state, rank);
  });
  if (copy.ok()) copied_ = std::max(copied_, bytes);
  return copy;
}

uint64_t Background::Start(Task task) {
  if (thread_.joinable()) thread_.join();
  {
    absl::MutexLock lock(&mutex_);
    running_ = true;
  }
  thread_ = std::thread([this, task = std::move(task), activity = activity::Current()]() mutable {
    const activity::Scope scope(activity);
    const absl::Status status = Guarded("writing files", task);
    task = nullptr;  // frees the copy of the state
    absl::MutexLock lock(&mutex_);
    failure_ = status;
    running_ = false;
  });
  return ++newest_;
}

absl::Status Background::Await() {
  if (running()) reports_->Progress("waiting for files that are being written");
  if (thread_.joinable()) thread_.join();
  return failure();
}

bool Background::running() const {
  absl::MutexLock lock(&mutex_);
  return running_;
}

absl::Status Background::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

}  // namespace muster::train
