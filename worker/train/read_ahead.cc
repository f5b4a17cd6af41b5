#include "worker/train/read_ahead.h"

#include <utility>

#include "ATen/core/Tensor.h"
#include "worker/memory/memory_scope.h"

namespace muster::train {

ReadAhead::ReadAhead(const data::Dataset* dataset)
    : dataset_(dataset), thread_([this] { Loop(); }) {}

ReadAhead::~ReadAhead() {
  {
    absl::MutexLock lock(&mutex_, absl::Condition(this, &ReadAhead::Settled));
    state_ = State::kClosing;
  }
  thread_.join();
}

void ReadAhead::Loop() {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kAsked || state_ == State::kClosing;
  };
  while (true) {
    std::vector<int64_t> samples;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
      if (state_ == State::kClosing) return;
      samples = samples_;
    }
    std::optional<absl::StatusOr<data::Batch>> batch;
    try {
      batch = dataset_->Read(samples);
    } catch (...) {
      // Read reads the samples again, and throws the exception in the thread that wants them.
    }
    absl::MutexLock lock(&mutex_);
    batch_ = std::move(batch);
    state_ = State::kRead;
  }
}

void ReadAhead::Begin(std::vector<int64_t> samples) {
  absl::MutexLock lock(&mutex_, absl::Condition(this, &ReadAhead::Settled));
  batch_.reset();
  samples_ = std::move(samples);
  state_ = samples_.empty() ? State::kIdle : State::kAsked;
}

absl::StatusOr<data::Batch> ReadAhead::Read(const std::vector<int64_t>& samples) {
  {
    absl::MutexLock lock(&mutex_, absl::Condition(this, &ReadAhead::Settled));
    const bool wanted = state_ == State::kRead && samples_ == samples;
    state_ = State::kIdle;
    auto batch = std::exchange(batch_, std::nullopt);
    if (wanted && batch.has_value()) return *std::move(batch);
  }
  return dataset_->Read(samples);
}

}  // namespace muster::train
