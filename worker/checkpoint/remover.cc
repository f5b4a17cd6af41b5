#include "worker/checkpoint/remover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/manifest/name.h"
#include "worker/checkpoint/directory.h"

namespace muster::checkpoint {

Remover::Remover(Options options) : options_(std::move(options)), thread_([this] { Loop(); }) {}

Remover::~Remover() { Stop(); }

void Remover::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Remover::Remove(const std::vector<std::string>& names) {
  std::vector<std::string> refused;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::string& name : names) {
      if (!manifest::ParseFinalName(name).has_value()) {
        refused.push_back(name);
      } else if (waiting_.size() < kMostWaiting &&
                 std::find(waiting_.begin(), waiting_.end(), name) == waiting_.end()) {
        waiting_.push_back(name);
      }
    }
  }
  for (const std::string& name : refused) {
    options_.on_error(absl::InvalidArgumentError(absl::StrCat(
        "to be removed: expected the name of a checkpoint, step-N-gG, found '", name, "'")));
  }
}

void Remover::Begin(const std::string& folder, const Epoch& epoch) {
  absl::MutexLock lock(&mutex_);
  if (begun_) return;
  folder_ = folder;
  epoch_ = epoch;
  begun_ = true;
}

bool Remover::Drain(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return idle_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !begun_ || (waiting_.empty() && !busy_);
  });
}

void Remover::Loop() {
  while (true) {
    std::string name;
    {
      absl::MutexLock lock(&mutex_);
      busy_ = false;
      idle_.Changed();
      const auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || (begun_ && !waiting_.empty());
      };
      mutex_.Await(absl::Condition(&work));
      if (closing_) return;
      name = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
    }
    if (RemoveOne(name)) continue;
    absl::MutexLock lock(&mutex_);
    waiting_.clear();
  }
}

bool Remover::RemoveOne(const std::string& name) {
  const absl::Status mine = CheckEpoch(folder_, epoch_);
  if (!mine.ok()) {
    options_.on_error(mine);
    return !NewerGeneration(mine).has_value();
  }
  const absl::Status removed = RemoveCheckpoint(files::JoinPath(folder_, name));
  if (removed.ok()) {
    options_.on_removed({name});
  } else {
    options_.on_error(removed);
  }
  return true;
}

}  // namespace muster::checkpoint
