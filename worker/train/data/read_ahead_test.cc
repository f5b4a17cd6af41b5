#include "worker/train/data/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/synchronization/notification.h"
#include "common/activity/activity.h"

namespace muster::train {
namespace {

// A batch is the sum of its samples. Sample 13 is damaged, sample 14 throws an exception.
class Sums : public data::Dataset {
 public:
  int64_t size() const override { return 100; }
  absl::StatusOr<data::Batch> Read(std::span<const int64_t> samples) const override {
    EXPECT_EQ(readers_.fetch_add(1), 0) << "two threads read at a time";
    activity::Moved();
    if (block_ != nullptr && std::this_thread::get_id() != owner_) {
      reading_.Notify();
      block_->WaitForNotification();
    }
    int64_t sum = 0;
    for (const int64_t sample : samples) sum += sample;
    {
      const std::lock_guard lock(mutex_);
      ++reads_[sum];
      if (std::this_thread::get_id() == owner_) ++own_reads_;
    }
    readers_.fetch_sub(1);
    if (sum == 13) return absl::InvalidArgumentError("sample 13 is damaged");
    if (sum == 14) throw std::runtime_error("sample 14");
    const at::Tensor inputs = at::full({1}, static_cast<double>(sum));
    return data::Batch{inputs, inputs};
  }
  data::Batch Blank(int64_t) const override { return {}; }
  absl::Status Check(const data::Part&) const override { return absl::OkStatus(); }

  int reads(int64_t sum) const {
    const std::lock_guard lock(mutex_);
    return reads_[sum];
  }
  int own_reads() const {
    const std::lock_guard lock(mutex_);
    return own_reads_;
  }

  const std::thread::id owner_ = std::this_thread::get_id();
  // A notification for which the reading thread waits before each read; null: no wait.
  absl::Notification* block_ = nullptr;
  mutable absl::Notification reading_;

 private:
  mutable std::atomic<int> readers_{0};
  mutable std::mutex mutex_;
  mutable std::map<int64_t, int> reads_;
  mutable int own_reads_ = 0;
};

double SumOf(const absl::StatusOr<data::Batch>& batch) {
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() ? *batch->inputs.const_data_ptr<float>() : -1;
}

TEST(ReadAhead, TheOtherThreadReadsWhatWasBegunAndEachBatchIsReadOnce) {
  const Sums sums;
  ReadAhead ahead(&sums);
  EXPECT_EQ(SumOf(ahead.Read({1, 2})), 3);
  for (int64_t i = 10; i < 13; ++i) {
    ahead.Begin({i, 20});
    EXPECT_EQ(SumOf(ahead.Read({i, 20})), i + 20);
    EXPECT_EQ(sums.reads(i + 20), 1);
  }
  EXPECT_EQ(sums.own_reads(), 1);  // only the first batch, for which Begin was not called
}

// A rank that waits for a batch from a slow disk makes progress while blocks are read.
TEST(ReadAhead, WhatTheOtherThreadReadsIsProgressOfTheRank) {
  const Sums sums;
  activity::Activity activity;
  const activity::Scope scope(&activity);
  ReadAhead ahead(&sums);
  ahead.Begin({1});
  EXPECT_EQ(SumOf(ahead.Read({1})), 1);
  EXPECT_EQ(sums.own_reads(), 0);
  EXPECT_EQ(activity.count(), 1u);
}

TEST(ReadAhead, OtherSamplesThanThoseThatWereBegunAreReadAllTheSame) {
  const Sums sums;
  ReadAhead ahead(&sums);
  ahead.Begin({1});
  EXPECT_EQ(SumOf(ahead.Read({2})), 2);
  EXPECT_EQ(SumOf(ahead.Read({1})), 1);  // the batch of Begin is dropped
  ahead.Begin({3});
  ahead.Begin({4});
  EXPECT_EQ(SumOf(ahead.Read({4})), 4);
  ahead.Begin({});
  EXPECT_EQ(SumOf(ahead.Read({5})), 5);
}

TEST(ReadAhead, AnErrorIsThatOfTheBatchItBelongsTo) {
  const Sums sums;
  ReadAhead ahead(&sums);
  ahead.Begin({13});
  EXPECT_EQ(ahead.Read({13}).status(), absl::InvalidArgumentError("sample 13 is damaged"));
  ahead.Begin({13});
  EXPECT_EQ(SumOf(ahead.Read({2})), 2);
}

TEST(ReadAhead, AnExceptionIsThrownInTheThreadThatWantsTheBatch) {
  const Sums sums;
  ReadAhead ahead(&sums);
  ahead.Begin({14});
  EXPECT_THROW(ahead.Read({14}).IgnoreError(), std::runtime_error);
  EXPECT_EQ(SumOf(ahead.Read({2})), 2);
}

TEST(ReadAhead, TheCallerGoesOnWhileABatchIsBeingReadAndTheDestructorWaitsForIt) {
  Sums sums;
  absl::Notification go_on;
  sums.block_ = &go_on;
  {
    ReadAhead ahead(&sums);
    ahead.Begin({7});
    sums.reading_.WaitForNotification();
    EXPECT_EQ(sums.reads(7), 0);
    go_on.Notify();
  }
  EXPECT_EQ(sums.reads(7), 1);
}

}  // namespace
}  // namespace muster::train
