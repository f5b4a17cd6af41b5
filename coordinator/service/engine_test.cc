#include "coordinator/service/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"
#include "coordinator/store/memory_store.h"

namespace muster::service {
namespace {

// A memory store whose commits can be made to fail.
class FaultyStore : public store::MemoryStore {
 public:
  absl::Status Commit(const store::Batch& batch) override {
    ++commits;
    if (broken) return absl::ResourceExhaustedError("disk full");
    return MemoryStore::Commit(batch);
  }
  std::atomic<bool> broken = false;
  std::atomic<int> commits = 0;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    EngineOptions options;
    options.cluster.new_incarnation = [] { return "i"; };
    options.clock = [] { return absl::FromUnixSeconds(1000); };
    options.out = [this](const cluster::Effect& effect) {
      if (std::holds_alternative<cluster::JobChanged>(effect)) ++changes_;
    };
    options.on_failure = [this](const absl::Status& status) { failed_.push_back(status); };
    auto engine = Engine::Start(std::move(options), &store_);
    EXPECT_TRUE(engine.ok());
    engine_ = std::move(*engine);
  }

  // Submits a job and waits for the answer.
  absl::Status Submit(const std::string& id) {
    absl::Notification answered;
    absl::Status answer;
    engine_->Post(
        [id](cluster::Cluster& cluster, absl::Time now) {
          EXPECT_TRUE(cluster.Submit({.job_id = id, .name = id}, now).ok());
        },
        [&](const absl::Status& committed) {
          answer = committed;
          answered.Notify();
        });
    EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
    return answer;
  }

  FaultyStore store_;
  std::atomic<int> changes_ = 0;
  std::vector<absl::Status> failed_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnAnswerMeansThatItIsStored) {
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(store_.Load()->jobs.size(), 1);
  EXPECT_EQ(changes_, 1);
}

TEST_F(EngineTest, AFailedCommitIsAnsweredWithUnavailableAndLetsNothingOut) {
  ASSERT_TRUE(Submit("a").ok());
  store_.broken = true;
  const absl::Status answer = Submit("b");
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(answer.message().find("disk full"), absl::string_view::npos);
  EXPECT_EQ(changes_, 1);
  // Nor is anything taken afterwards, although the disk is well again: the state in memory is
  // ahead.
  store_.broken = false;
  const int commits = store_.commits;
  EXPECT_EQ(Submit("c").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store_.commits, commits);
  EXPECT_EQ(failed_.size(), 1);
  EXPECT_EQ(store_.Load()->jobs.size(), 1);
}

TEST_F(EngineTest, WhatHasArrivedIsStoredBeforeItStops) {
  std::atomic<int> answered = 0;
  for (int i = 0; i < 100; ++i) {
    engine_->Post(
        [i](cluster::Cluster& cluster, absl::Time now) {
          EXPECT_TRUE(cluster.Submit({.job_id = std::to_string(i), .name = "x"}, now).ok());
        },
        [&](const absl::Status& committed) { answered += committed.ok(); });
  }
  engine_->Stop();
  EXPECT_EQ(answered, 100);
  EXPECT_EQ(store_.Load()->jobs.size(), 100);
}

TEST_F(EngineTest, AfterItStoppedEverythingIsUnavailable) {
  engine_->Stop();
  absl::Status answer;
  engine_->Post([](cluster::Cluster&, absl::Time) { FAIL(); },
                [&](const absl::Status& committed) { answer = committed; });
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, ManyEventsShareACommit) {
  absl::Notification started, go;
  engine_->Post(
      [&](cluster::Cluster&, absl::Time) {
        started.Notify();
        go.WaitForNotification();
      },
      nullptr);
  started.WaitForNotification();
  const int before = store_.commits;
  for (int i = 0; i < 50; ++i) {
    engine_->Post(
        [i](cluster::Cluster& cluster, absl::Time now) {
          EXPECT_TRUE(cluster.Submit({.job_id = std::to_string(i), .name = "x"}, now).ok());
        },
        nullptr);
  }
  go.Notify();
  ASSERT_TRUE(Submit("last").ok());
  EXPECT_LE(store_.commits - before, 3);
}

}  // namespace
}  // namespace muster::service
