#include "coordinator/webhook/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/life_row.h"

namespace muster::webhook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1000);

class OutboxTest : public testing::Test {
 protected:
  Outbox Make(const std::vector<std::string>& urls,
              const std::vector<store::DeliveryRow>& stored = {}) {
    OutboxOptions options = {.most_pending = 3,
                             .new_id = [this] { return absl::StrCat("id-", ++ids_); }};
    for (const std::string& url : urls) options.receivers.push_back(*ParseUrl(url));
    return Outbox(std::move(options), stored);
  }
  static jobs::Job Job(const std::string& id, jobs::State state) {
    jobs::Job job;
    job.id = id;
    jobs::LifeRow row;
    row.state = state;
    row.live = state == jobs::State::kStarting || state == jobs::State::kRunning;
    static_cast<jobs::JobLife&>(job) = *jobs::LifeOf(row);
    return job;
  }
  static std::vector<uint64_t> Numbers(const std::vector<store::DeliveryRow>& rows) {
    std::vector<uint64_t> numbers;
    for (const store::DeliveryRow& row : rows) numbers.push_back(row.number);
    return numbers;
  }

 private:
  int ids_ = 0;
};

TEST_F(OutboxTest, WithoutReceiversNothingIsStored) {
  Outbox outbox = Make({});
  outbox.Observe(Job("a", jobs::State::kQueued), kNow);
  const Outbox::Changes changes = outbox.TakeChanges();
  EXPECT_THAT(changes.added, IsEmpty());
  EXPECT_THAT(changes.send, IsEmpty());
}

TEST_F(OutboxTest, EachReceiverGetsEachChangeOnce) {
  Outbox outbox = Make({"http://a/", "http://b/"});
  outbox.Observe(Job("j", jobs::State::kQueued), kNow);
  outbox.Observe(Job("j", jobs::State::kQueued), kNow);
  outbox.Observe(Job("j", jobs::State::kStarting), kNow);
  const Outbox::Changes changes = outbox.TakeChanges();
  EXPECT_THAT(Numbers(changes.added), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(changes.added, changes.send);
  EXPECT_EQ(changes.added[0].receiver, "http://a/");
  EXPECT_EQ(changes.added[1].receiver, "http://b/");
  EXPECT_EQ(changes.added[0].id, changes.added[1].id);
  EXPECT_NE(changes.added[0].id, changes.added[2].id);
  EXPECT_THAT(changes.added[0].body, HasSubstr(R"("former_state":null,"state":"QUEUED")"));
  EXPECT_THAT(changes.added[2].body, HasSubstr(R"("former_state":"QUEUED","state":"STARTING")"));
  EXPECT_THAT(outbox.TakeChanges().added, IsEmpty());
}

TEST_F(OutboxTest, AKnownJobIsToldOnlyWhenItChanges) {
  Outbox outbox = Make({"http://a/"});
  outbox.Know(Job("j", jobs::State::kRunning));
  outbox.Observe(Job("j", jobs::State::kRunning), kNow);
  EXPECT_THAT(outbox.TakeChanges().added, IsEmpty());
  outbox.Observe(Job("j", jobs::State::kSucceeded), kNow);
  EXPECT_THAT(outbox.TakeChanges().added[0].body, HasSubstr(R"("former_state":"RUNNING")"));
}

TEST_F(OutboxTest, ALaterJobOfTheSameIdIsNew) {
  Outbox outbox = Make({"http://a/"});
  outbox.Observe(Job("j", jobs::State::kQueued), kNow);
  outbox.Forget("j");
  outbox.Observe(Job("j", jobs::State::kQueued), kNow);
  EXPECT_EQ(outbox.TakeChanges().added.size(), 2);
}

TEST_F(OutboxTest, WhatIsSettledIsRemovedOnce) {
  Outbox outbox = Make({"http://a/"});
  outbox.Observe(Job("j", jobs::State::kQueued), kNow);
  outbox.TakeChanges();
  outbox.Settle(1);
  outbox.Settle(1);
  outbox.Settle(99);
  EXPECT_THAT(outbox.TakeChanges().removed, ElementsAre(1));
  EXPECT_EQ(outbox.pending(), 0);
}

TEST_F(OutboxTest, BeyondTheLimitTheOldestOfThisReceiverIsDroppedByName) {
  Outbox outbox = Make({"http://a/secret", "http://b/"});
  outbox.Observe(Job("first", jobs::State::kQueued), kNow);
  for (const uint64_t of_b : {2}) outbox.Settle(of_b);
  outbox.TakeChanges();
  for (const char* id : {"second", "third", "fourth"}) {
    outbox.Observe(Job(id, jobs::State::kQueued), kNow);
  }
  const Outbox::Changes changes = outbox.TakeChanges();
  EXPECT_THAT(changes.removed, ElementsAre(1));
  ASSERT_EQ(changes.withdrawn.size(), 1);
  EXPECT_EQ(changes.withdrawn[0].receiver, "http://a/secret");
  EXPECT_EQ(changes.withdrawn[0].number, 1);
  EXPECT_THAT(changes.say, ElementsAre("webhook http://a: 3 messages wait to be accepted; dropped "
                                       "the oldest one, about job 'first'"));
  EXPECT_EQ(outbox.pending(), 6);
}

TEST_F(OutboxTest, ReceiversOfTheSameHostAreToldApart) {
  Outbox outbox = Make({"http://a/secret", "http://a/other"});
  for (const char* id : {"1", "2", "3", "4"}) outbox.Observe(Job(id, jobs::State::kQueued), kNow);
  EXPECT_THAT(outbox.TakeChanges().say,
              ElementsAre(HasSubstr("webhook http://a (--webhook 1): 3"),
                          HasSubstr("webhook http://a (--webhook 2): 3")));
}

TEST_F(OutboxTest, WhatIsDroppedBeforeItWasStoredIsNeverStored) {
  Outbox outbox = Make({"http://a/"});
  for (const char* id : {"1", "2", "3", "4", "5"}) {
    outbox.Observe(Job(id, jobs::State::kQueued), kNow);
  }
  const Outbox::Changes changes = outbox.TakeChanges();
  EXPECT_THAT(Numbers(changes.added), ElementsAre(3, 4, 5));
  EXPECT_EQ(changes.added, changes.send);
  EXPECT_THAT(changes.removed, IsEmpty());
}

TEST_F(OutboxTest, AfterARestartWhatWaitsIsSentAgainAndNumbersContinue) {
  const store::DeliveryRow mine = {.number = 7, .receiver = "http://a/", .id = "x", .job_id = "j"};
  const store::DeliveryRow gone = {.number = 9, .receiver = "http://gone/", .job_id = "j"};
  Outbox outbox = Make({"http://a/"}, {mine, gone});
  Outbox::Changes changes = outbox.TakeChanges();
  EXPECT_THAT(changes.send, ElementsAre(mine));
  EXPECT_THAT(changes.added, IsEmpty());
  EXPECT_THAT(changes.removed, ElementsAre(9));
  EXPECT_THAT(changes.say, ElementsAre(HasSubstr("dropped 1 messages")));
  outbox.Observe(Job("k", jobs::State::kQueued), kNow);
  EXPECT_THAT(Numbers(outbox.TakeChanges().added), ElementsAre(10));
  outbox.Settle(7);
  EXPECT_THAT(outbox.TakeChanges().removed, ElementsAre(7));
}

}  // namespace
}  // namespace muster::webhook
