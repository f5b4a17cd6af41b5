#include "worker/train/data/read_ahead.h"

#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/item.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/sum.h"
#include "common/status/status.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"

namespace muster::train {

namespace {

data::Batch On(c10::Device device, const data::Batch& batch) {
  data::Batch there = {device::On(device, batch.inputs), device::On(device, batch.targets),
                       batch.counted_targets};
  for (const at::Tensor& one : batch.further) there.further.push_back(device::On(device, one));
  return there;
}

}  // namespace

ReadAhead::ReadAhead(const data::Dataset* dataset, c10::Device device,
                     std::optional<int64_t> ignored)
    : dataset_(dataset),
      device_(device),
      ignored_(ignored),
      thread_([this, activity = activity::Current()] { Loop(activity); }) {}

ReadAhead::~ReadAhead() {
  {
    absl::MutexLock lock(&mutex_, absl::Condition(this, &ReadAhead::Settled));
    state_ = State::kClosing;
  }
  thread_.join();
}

data::Batch ReadAhead::Prepared(data::Batch batch) const {
  if (ignored_.has_value()) {
    batch.counted_targets = batch.targets.ne(*ignored_).sum().item<int64_t>();
  }
  batch.inputs = device::PinnedFor(device_, batch.inputs);
  batch.targets = device::PinnedFor(device_, batch.targets);
  for (at::Tensor& one : batch.further) one = device::PinnedFor(device_, one);
  return batch;
}

void ReadAhead::Loop(activity::Activity* activity) {
  const activity::Scope moving(activity);
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
      if (batch->ok()) batch = Prepared(**std::move(batch));
    } catch (...) {
      // Read reads the samples again, so the exception reaches the thread that calls Read.
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
    if (wanted && batch.has_value()) {
      RETURN_IF_ERROR(batch->status());
      return On(device_, **batch);
    }
  }
  ASSIGN_OR_RETURN(data::Batch batch, dataset_->Read(samples));
  return On(device_, Prepared(std::move(batch)));
}

data::Batch ReadAhead::Blank(int64_t samples) const {
  return On(device_, Prepared(dataset_->Blank(samples)));
}

}  // namespace muster::train
