#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/train/reports/session_reports.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Doings : public EventSink {
 public:
  void Report(const Event&) override {}
  void Progress(int64_t, const char*, const char* doing) override { doings_.push_back(doing); }
  std::vector<std::string> doings_;
};

class AttemptsTest : public testing::Test {
 protected:
  Doings doings_;
  SessionState session_state_;
  const SessionReports reports_{1, &doings_, &session_state_};
  std::vector<absl::Duration> slept_;
  const Attempts attempts_{absl::Seconds(2), &reports_,
                           [this](absl::Duration duration) { slept_.push_back(duration); }};
};

TEST_F(AttemptsTest, AFullDiskIsTriedThreeTimesWithAPauseBetween) {
  const absl::Status full = absl::ResourceExhaustedError("no space left");
  EXPECT_TRUE(attempts_.TryAgain(full, 1, "saving"));
  EXPECT_TRUE(attempts_.TryAgain(full, 2, "saving"));
  EXPECT_FALSE(attempts_.TryAgain(full, 3, "saving"));
  EXPECT_THAT(slept_, ElementsAre(absl::Seconds(2), absl::Seconds(2)));
  EXPECT_THAT(doings_.doings_, ElementsAre("saving", "saving"));
  EXPECT_TRUE(attempts_.TryAgain(absl::InternalError("input/output error"), 1, "saving"));
}

TEST_F(AttemptsTest, WhatNobodyCanMendIsNotTriedAgain) {
  EXPECT_FALSE(attempts_.TryAgain(absl::PermissionDeniedError("no"), 1, "saving"));
  EXPECT_FALSE(attempts_.TryAgain(absl::UnavailableError("the lease is over"), 1, "saving"));
  EXPECT_THAT(slept_, IsEmpty());
  EXPECT_THAT(doings_.doings_, IsEmpty());
}

}  // namespace
}  // namespace muster::train
