// Messages about jobs: which exist, and that each is stored together with its change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class WebhooksTest : public testing::Test {
 protected:
  WebhooksTest() {
    world.webhooks = {"http://a/"};
    world.Restart();
  }
  // Returns "FORMER STATE", or "STATE" for a new job, of the messages that are to be sent now.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    for (const Effect& effect : world.effects) {
      const auto* deliver = std::get_if<SendWebhook>(&effect);
      if (deliver == nullptr) continue;
      const std::string& body = deliver->message.body;
      const auto value = [&body](const std::string& name) {
        const size_t begin = body.find(absl::StrCat("\"", name, "\":\"")) + name.size() + 4;
        return body.substr(begin, body.find('"', begin) - begin);
      };
      const bool is_new = body.find("\"former_state\":null") != std::string::npos;
      sent.push_back(is_new ? value("state")
                            : absl::StrCat(value("former_state"), " ", value("state")));
    }
    world.effects.clear();
    return sent;
  }
  std::vector<store::DeliveryRow> Stored() { return world.store().Load()->deliveries; }

  World world;
};

TEST_F(WebhooksTest, EachChangeOfAStateIsOneMessage) {
  world.Start("j", 2);
  EXPECT_THAT(Sent(), ElementsAre("QUEUED", "QUEUED STARTING", "STARTING RUNNING"));
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = StepDone{.step = 1}}).ok());
  world.Pass(3);
  EXPECT_THAT(Sent(), IsEmpty());
  world.Exit(1, world.job("j").Worker(1), 9);
  EXPECT_THAT(Sent(), ElementsAre("RUNNING RECOVERING"));
  const std::string body = Stored().back().body;
  EXPECT_THAT(body, HasSubstr(R"("failure":{"rank":1,"node":"a","step":0,"reason":"killed)"));
  // The next generation starts within the same event.
  world.Exit(1, world.job("j").Worker(0), 15);
  EXPECT_THAT(Sent(), ElementsAre("RECOVERING STARTING"));
}

TEST_F(WebhooksTest, TheNextAttemptIsToldToo) {
  world.Submit("j", 1);
  ASSERT_TRUE(world.Stop("j").ok());
  ASSERT_TRUE(
      world.cluster()
          .NextAttempt({.job_id = "j", .command = {.kind = v1::Operation::RESUME}}, world.now())
          .ok());
  world.Commit();
  EXPECT_THAT(Sent(), ElementsAre("QUEUED", "QUEUED CANCELLED", "CANCELLED QUEUED"));
  EXPECT_THAT(Stored().back().body, HasSubstr(R"("attempt":2)"));
}

TEST_F(WebhooksTest, MessagesAreStoredWithTheChangeAndLeaveOnlyAfterwards) {
  ASSERT_TRUE(world.cluster().Submit({.job_id = "j", .plan = {}}, world.now()).ok());
  const store::Batch batch = world.cluster().TakeBatch();
  EXPECT_EQ(batch.jobs.size(), 1);
  EXPECT_EQ(batch.deliveries.size(), 1);
}

TEST_F(WebhooksTest, WhatWasNotSettledIsSentAgainAfterARestart) {
  world.Submit("j", 1);
  world.Submit("k", 1);
  const std::vector<store::DeliveryRow> stored = Stored();
  ASSERT_EQ(stored.size(), 2);
  world.cluster().Settled({stored[0].number});
  world.Commit();
  world.effects.clear();
  world.Restart();
  world.Commit();
  ASSERT_EQ(world.effects.size(), 1);
  EXPECT_EQ(std::get<SendWebhook>(world.effects[0]).message, stored[1]);
  world.cluster().Settled({stored[1].number});
  world.Commit();
  EXPECT_THAT(Stored(), IsEmpty());
}

TEST_F(WebhooksTest, MessagesAboutADeletedJobAreStillSent) {
  world.Submit("j", 1);
  ASSERT_TRUE(world.Stop("j").ok());
  ASSERT_TRUE(world.Delete("j").ok());
  EXPECT_EQ(Stored().size(), 2);
  world.Submit("j", 1);
  EXPECT_THAT(Sent(), ElementsAre("QUEUED", "QUEUED CANCELLED", "QUEUED"));
}

TEST_F(WebhooksTest, WithoutWebhooksNothingIsStored) {
  world.webhooks.clear();
  world.Restart();
  world.Start("j", 2);
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_THAT(Stored(), IsEmpty());
}

}  // namespace
}  // namespace muster::cluster
