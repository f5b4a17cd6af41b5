#include "coordinator/webhook/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace muster::webhook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1000);

store::DeliveryRow Message(uint64_t number, const std::string& job) {
  return {
      .number = number, .id = absl::StrCat("id-", number), .job_id = job, .create_time = kStart};
}

class ScheduleTest : public testing::Test {
 protected:
  // Returns the number of the due message; 0 if there is none.
  uint64_t Due() {
    const store::DeliveryRow* due = schedule_.Due(now_);
    return due == nullptr ? 0 : due->number;
  }
  Schedule::Result Answer(const webhook::Answer& answer) {
    const store::DeliveryRow message = *schedule_.Due(now_);
    return schedule_.Take(message, answer, now_, /*jitter=*/1);
  }
  Schedule schedule_{Retries()};
  absl::Time now_ = kStart;
};

TEST_F(ScheduleTest, NothingIsDueAtFirst) {
  EXPECT_EQ(Due(), 0);
  EXPECT_EQ(schedule_.NextDue(), absl::InfiniteFuture());
}

TEST_F(ScheduleTest, AMessageIsSentUntilItIsAccepted) {
  schedule_.Add(Message(1, "a"));
  EXPECT_EQ(Due(), 1);
  Schedule::Result result = Answer({.status = 500});
  EXPECT_THAT(result.settled, IsEmpty());
  EXPECT_EQ(result.say, "answered 500; message id-1 about job 'a' is sent again in 1s");
  EXPECT_EQ(Due(), 0);
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(1));
  now_ = schedule_.NextDue();
  EXPECT_EQ(Answer({.status = 500}).say, "") << "the reason has not changed";
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(2));
  now_ = schedule_.NextDue();
  result = Answer({.status = 200});
  EXPECT_THAT(result.settled, ElementsAre(1));
  EXPECT_EQ(result.say, "accepts messages again");
  EXPECT_EQ(schedule_.size(), 0);
}

TEST_F(ScheduleTest, AMessageThatFailsDelaysOnlyItsOwnJob) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "a"));
  schedule_.Add(Message(3, "b"));
  Answer({.status = 500});
  EXPECT_EQ(Due(), 3);
  EXPECT_THAT(Answer({.status = 204}).settled, ElementsAre(3));
  EXPECT_EQ(Due(), 0);
  now_ = schedule_.NextDue();
  EXPECT_EQ(Due(), 1) << "not 2, which comes after it";
}

TEST_F(ScheduleTest, AReceiverThatFailsDelaysAllJobs) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "b"));
  Answer({.trouble = "no connection"});
  EXPECT_EQ(Due(), 0);
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(1));
}

TEST_F(ScheduleTest, ARefusedMessageIsGivenUpAndTheNextOneIsSentAtOnce) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "a"));
  const Schedule::Result result = Answer({.status = 410});
  EXPECT_THAT(result.settled, ElementsAre(1));
  EXPECT_EQ(result.say, "answered 410; message id-1 about job 'a' is given up");
  EXPECT_EQ(Due(), 2);
}

TEST_F(ScheduleTest, WaitsDoubleUpToTheLongestAndJitterShortensThemByHalfAtMost) {
  schedule_.Add(Message(1, "a"));
  for (const int seconds : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600}) {
    Answer({.trouble = "no connection"});
    EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(seconds));
    now_ = schedule_.NextDue();
  }
  const store::DeliveryRow message = *schedule_.Due(now_);
  schedule_.Take(message, {.trouble = "no connection"}, now_, /*jitter=*/0);
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(300));
}

TEST_F(ScheduleTest, RetryAfterIsRespectedUpToAnHour) {
  schedule_.Add(Message(1, "a"));
  Answer({.status = 429, .retry_after = absl::Minutes(20)});
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Minutes(20));
  now_ = schedule_.NextDue();
  Answer({.status = 503, .retry_after = absl::Hours(1000)});
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Hours(1));
  now_ = schedule_.NextDue();
  Answer({.status = 503, .retry_after = absl::ZeroDuration()});
  EXPECT_EQ(schedule_.NextDue(), now_ + absl::Seconds(4)) << "the usual wait";
}

TEST_F(ScheduleTest, AnOldMessageThatFailsIsGivenUpAloneAndTheOthersAreTried) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "a"));
  schedule_.Add(Message(3, "b"));
  now_ = kStart + absl::Hours(24) - absl::Seconds(1);
  EXPECT_THAT(Answer({.status = 500}).settled, IsEmpty());
  EXPECT_THAT(Answer({.status = 200}).settled, ElementsAre(3));
  schedule_.Add(Message(4, "c"));
  now_ = kStart + absl::Hours(30);
  const Schedule::Result result = Answer({.status = 500});
  EXPECT_THAT(result.settled, ElementsAre(1));
  EXPECT_EQ(result.say, "answered 500; message id-1 about job 'a' is given up after 24h");
  EXPECT_EQ(Due(), 2) << "however old it is, it is tried, and at once";
  EXPECT_THAT(Answer({.status = 200}).settled, ElementsAre(2));
  EXPECT_THAT(Answer({.status = 200}).settled, ElementsAre(4));
}

TEST_F(ScheduleTest, OldMessagesAreGivenUpTogetherOnceTheReceiverHasFailedForAnHour) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "a"));
  schedule_.Add(Message(3, "b"));
  store::DeliveryRow young = Message(4, "b");
  young.create_time = kStart + absl::Hours(49);
  schedule_.Add(young);
  // All machines were switched off for a weekend.
  now_ = kStart + absl::Hours(48);
  const absl::Time failed_first = now_;
  Schedule::Result result = Answer({.trouble = "no connection"});
  while (result.settled.empty()) {
    ASSERT_LT(now_, failed_first + absl::Hours(1));
    now_ = schedule_.NextDue();
    result = Answer({.trouble = "no connection"});
  }
  EXPECT_GE(now_, failed_first + absl::Hours(1));
  EXPECT_THAT(result.settled, ElementsAre(1, 2, 3));
  EXPECT_EQ(result.say,
            "no connection; message id-1 about job 'a' and 2 more are given up after 24h");
  EXPECT_EQ(schedule_.size(), 1);
  now_ = kStart + absl::Hours(80);
  EXPECT_EQ(Due(), 4) << "however old it is, it is tried";
  EXPECT_THAT(Answer({.status = 200}).settled, ElementsAre(4));
}

TEST_F(ScheduleTest, AnAnswerBetweenTwoFailuresBeginsTheHourOfTheReceiverAgain) {
  for (uint64_t number = 1; number <= 3; ++number) schedule_.Add(Message(number, "a"));
  now_ = kStart + absl::Hours(48);
  Answer({.trouble = "no connection"});
  now_ += absl::Minutes(59);
  EXPECT_THAT(Answer({.status = 200}).settled, ElementsAre(1));
  EXPECT_THAT(Answer({.trouble = "no connection"}).settled, IsEmpty());
  now_ += absl::Minutes(59);
  EXPECT_THAT(Answer({.trouble = "no connection"}).settled, IsEmpty());
  now_ += absl::Minutes(59);
  EXPECT_THAT(Answer({.trouble = "no connection"}).settled, ElementsAre(2, 3));
}

TEST_F(ScheduleTest, AnAnswerForAWithdrawnMessageIsIgnored) {
  schedule_.Add(Message(1, "a"));
  schedule_.Add(Message(2, "a"));
  const store::DeliveryRow sent = *schedule_.Due(now_);
  schedule_.Withdraw(1);
  schedule_.Withdraw(99);
  EXPECT_THAT(schedule_.Take(sent, {.status = 200}, now_, 0).settled, IsEmpty());
  EXPECT_EQ(Due(), 2);
}

}  // namespace
}  // namespace muster::webhook
