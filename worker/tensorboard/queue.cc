#include "worker/tensorboard/queue.h"

#include <algorithm>

namespace muster::tensorboard {
namespace {

void Include(const Steps& more, std::optional<Steps>* steps) {
  if (!steps->has_value()) *steps = more;
  (*steps)->first = std::min((*steps)->first, more.first);
  (*steps)->last = std::max((*steps)->last, more.last);
}

}  // namespace

std::optional<Steps> Queue::Add(int64_t step, std::string bytes) {
  bytes_ += bytes.size();
  waiting_.push_back({++newest_, step, std::move(bytes)});
  std::optional<Steps> dropped;
  while (bytes_ > limit_ && waiting_.size() > 1) {
    const int64_t oldest = waiting_.front().step;
    Include({oldest, oldest}, &dropped);
    RemoveOldest();
  }
  if (dropped.has_value()) Include(*dropped, &lost_);
  return dropped;
}

void Queue::RemoveOldest() {
  bytes_ -= waiting_.front().bytes.size();
  waiting_.pop_front();
}

Queue::Batch Queue::Oldest(size_t size) const {
  Batch batch;
  std::optional<Steps> steps;
  for (const Record& record : waiting_) {
    if (steps.has_value() && batch.bytes.size() + record.bytes.size() > size) break;
    batch.newest = record.number;
    batch.bytes += record.bytes;
    Include({record.step, record.step}, &steps);
  }
  batch.steps = steps.value();
  return batch;
}

void Queue::Written(const Batch& batch) {
  written_ = batch.newest;
  Include(batch.steps, &unsynced_);
  // Some records may have been dropped while they were being written.
  while (!waiting_.empty() && waiting_.front().number <= batch.newest) RemoveOldest();
}

void Queue::Synced() {
  settled_ = written_;
  unsynced_.reset();
}

std::optional<Steps> Queue::FileFailed() {
  const std::optional<Steps> failed = unsynced_;
  if (failed.has_value()) Include(*failed, &lost_);
  Synced();
  return failed;
}

std::optional<Steps> Queue::Missing() const {
  std::optional<Steps> missing = lost_;
  if (unsynced_.has_value()) Include(*unsynced_, &missing);
  for (const Record& record : waiting_) Include({record.step, record.step}, &missing);
  return missing;
}

}  // namespace muster::tensorboard
