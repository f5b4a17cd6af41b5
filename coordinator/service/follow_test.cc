#include "coordinator/service/follow.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/steady/test_bound.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/store/faulty_store.h"
#include "coordinator/store/memory_store.h"

namespace muster::service {
namespace {

// A stream without items, and without a call of gRPC.
class EmptyStream : public FollowStream<v1::Job> {
 public:
  using FollowStream::FollowStream;

 protected:
  absl::StatusOr<bool> Next(v1::Job*) override { return false; }
  bool Over() override { return false; }
  bool IsLast() override { return false; }
};

class SilentFollower : public Follower {
 public:
  void Poke() override {}
  void End(const absl::Status&) override {}
  void JobDeleted() override {}
  absl::Status MayGoOn() const override { return absl::OkStatus(); }
};

// Submits a job. Returns when the engine has applied the submission; its commit may still be in
// progress.
void Submit(Engine* engine, const std::string& id) {
  absl::Notification applied;
  engine->Request(
      [&](cluster::Cluster& cluster, absl::Time now) {
        EXPECT_TRUE(cluster.Submit({.job_id = id, .name = id}, now).ok());
        applied.Notify();
      },
      nullptr);
  EXPECT_TRUE(applied.WaitForNotificationWithTimeout(kTestBound));
}

// Waits until everything applied before is committed, and then runs `done`.
void Read(Engine* engine, const std::function<void()>& done) {
  absl::Notification answered;
  engine->Read([&](const absl::Status&) {
    done();
    answered.Notify();
  });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kTestBound));
}

TEST(FollowStream, ACallThatIsCancelledDuringACommitFollowsNothing) {
  store::FaultyStore store(std::make_unique<store::MemoryStore>());
  Followers followers;
  SilentFollower other;
  EngineOptions options;
  options.cluster.new_incarnation = [] { return "i"; };
  options.clock = [] { return absl::FromUnixSeconds(1000); };
  options.out = [](const cluster::Effect&) {};
  options.on_failure = [](const absl::Status&) {};
  auto started = Engine::Start(std::move(options), &store);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<Engine> engine = *std::move(started);
  Submit(engine.get(), "a");
  Read(engine.get(), [] {});
  store.Hang(true);
  Submit(engine.get(), "b");

  // A stream's beginning waits for the commit, and its end does not.
  std::vector<std::shared_ptr<EmptyStream>> streams;
  for (size_t i = 0; i < kLimits.followers_of_job; ++i) {
    streams.push_back(std::make_shared<EmptyStream>(engine.get(), &followers, "a", Follows{}));
    streams.back()->Begin();
    streams.back()->OnCancel();
  }
  absl::Notification cancelled;
  engine->Aside([&](cluster::Cluster&, absl::Time) { cancelled.Notify(); });
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(kTestBound));
  store.Hang(false);

  absl::Status added;
  Read(engine.get(), [&] { added = followers.Add("a", "unix:", &other); });
  EXPECT_TRUE(added.ok()) << added;
  for (const auto& stream : streams) stream->OnDone();
}

class Allowed : public SilentFollower {
 public:
  Allowed(Followers* all, std::string job) : all_(all), job_(std::move(job)) {}
  absl::Status MayGoOn() const override { return may_go_on; }
  void End(const absl::Status& why) override {
    all_->Remove(job_, this);
    ended = why;
  }

  absl::Status may_go_on;
  absl::Status ended;

 private:
  Followers* const all_;
  const std::string job_;
};

TEST(Followers, WhoIsNotAllowedAnyMoreIsEnded) {
  Followers followers;
  Allowed revoked(&followers, "a"), same_job(&followers, "a"), other_job(&followers, "b");
  ASSERT_TRUE(followers.Add("a", "ipv4:10.0.0.1", &revoked).ok());
  ASSERT_TRUE(followers.Add("a", "ipv4:10.0.0.1", &same_job).ok());
  ASSERT_TRUE(followers.Add("b", "ipv4:10.0.0.1", &other_job).ok());
  revoked.may_go_on = absl::PermissionDeniedError("revoked");
  followers.EndRefused();
  EXPECT_EQ(revoked.ended, absl::PermissionDeniedError("revoked"));
  EXPECT_TRUE(same_job.ended.ok());
  EXPECT_TRUE(other_job.ended.ok());
}

TEST(Followers, OneHostLeavesRoomForOthers) {
  Followers followers;
  std::vector<SilentFollower> of_one(kLimits.followers_of_host);
  for (size_t i = 0; i < of_one.size(); ++i) {
    const std::string job = absl::StrCat("job-", i / kLimits.followers_of_job);
    ASSERT_TRUE(followers.Add(job, "ipv4:10.0.0.1", &of_one[i]).ok());
  }
  SilentFollower other;
  const absl::Status refused = followers.Add("b", "ipv4:10.0.0.1", &other);
  EXPECT_EQ(RefusalReason(refused), "TOO_MANY_FOLLOWERS");
  EXPECT_EQ(AboutOf(refused)["limit"], absl::StrCat(kLimits.followers_of_host));
  EXPECT_TRUE(followers.Add("b", "ipv4:10.0.0.2", &other).ok());
  followers.Remove("job-0", &of_one[0]);
  EXPECT_TRUE(followers.Add("b", "ipv4:10.0.0.1", &of_one[0]).ok());
}

TEST(Followers, AHostIsAPeerWithoutItsPort) {
  EXPECT_EQ(HostOf("ipv4:10.0.0.1:5000"), "ipv4:10.0.0.1");
  EXPECT_EQ(HostOf("ipv6:%5B::1%5D:5000"), "ipv6:%5B::1%5D");
  EXPECT_EQ(HostOf("unix:"), "unix:");
}

}  // namespace
}  // namespace muster::service
