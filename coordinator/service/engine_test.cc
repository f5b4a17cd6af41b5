#include "coordinator/service/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/steady/test_bound.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/retry.h"
#include "coordinator/store/faulty_store.h"
#include "coordinator/store/memory_store.h"

namespace muster::service {
namespace {

// A store with a reserve, whose release ends the fault of a full disk once.
class StoreWithReserve : public store::FaultyStore {
 public:
  StoreWithReserve() : FaultyStore(std::make_unique<store::MemoryStore>()) {}

  bool ReleaseReserve() override {
    const bool had = std::exchange(reserve, false);
    if (had) Fail(absl::OkStatus());
    return had;
  }
  bool RestoreReserve() override { return room.load(); }
  bool OpenedShortOfRoom() const override { return opened_short_of_room; }

  bool reserve = false;
  bool opened_short_of_room = false;
  std::atomic<bool> room = false;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() { StartEngine(); }
  // The store is destroyed after the engine.
  ~EngineTest() override {
    store_.Hang(false);
    engine_.reset();
  }

  void StartEngine() {
    EngineOptions options;
    options.cluster.timing.lease = absl::Seconds(10);
    options.cluster.new_incarnation = [] { return "i"; };
    options.clock = [this] {
      return absl::FromUnixSeconds(1000) + absl::Milliseconds(millis_.load());
    };
    options.out = [this](const cluster::Effect& effect) {
      if (std::holds_alternative<cluster::JobChanged>(effect)) ++changes_;
    };
    options.on_failure = [this](const absl::Status& status) { failed_.push_back(status); };
    options.on_trouble = [this](const std::optional<StoreTrouble>& trouble) {
      absl::MutexLock lock(&mutex_);
      trouble_ = trouble;
      ++turns_;
    };
    auto engine = Engine::Start(std::move(options), &store_);
    EXPECT_TRUE(engine.ok());
    engine_ = std::move(*engine);
  }

  static Engine::Apply Submission(const std::string& id) {
    return [id](cluster::Cluster& cluster, absl::Time now) {
      EXPECT_TRUE(cluster.Submit({.job_id = id, .name = id}, now).ok());
    };
  }
  using Post = void (Engine::*)(Engine::Apply, Engine::Done);
  // Submits a job and waits for the answer.
  absl::Status Submit(const std::string& id, Post post = &Engine::Request) {
    absl::Notification answered;
    absl::Status answer;
    (engine_.get()->*post)(Submission(id), [&](const absl::Status& committed) {
      answer = committed;
      answered.Notify();
    });
    EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kTestBound));
    return answer;
  }
  absl::Status Read() {
    absl::Notification answered;
    absl::Status answer;
    engine_->Read([&](const absl::Status& status) {
      answer = status;
      answered.Notify();
    });
    EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kTestBound));
    return answer;
  }
  // Lets time pass until the engine's trouble has begun or ended `turns` times.
  void PassUntilTurn(int turns) {
    for (int i = 0; i < 2000; ++i) {
      {
        absl::MutexLock lock(&mutex_);
        if (turns_ >= turns) return;
      }
      millis_ += 50;
      AwaitBeat();
    }
    ADD_FAILURE() << "the engine never came to turn " << turns;
  }
  // Waits until the engine's thread has run its loop once more.
  void AwaitBeat() {
    absl::Notification beaten;
    engine_->Aside([&](cluster::Cluster&, absl::Time) { beaten.Notify(); });
    EXPECT_TRUE(beaten.WaitForNotificationWithTimeout(kTestBound));
  }
  std::optional<StoreTrouble> trouble() {
    absl::MutexLock lock(&mutex_);
    return trouble_;
  }

  StoreWithReserve store_;
  std::atomic<int64_t> millis_ = 0;
  std::atomic<int> changes_ = 0;
  std::vector<absl::Status> failed_;
  absl::Mutex mutex_;
  std::optional<StoreTrouble> trouble_;
  int turns_ = 0;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnAnswerMeansThatItIsStored) {
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(store_.Load()->jobs.size(), 1);
  EXPECT_EQ(changes_, 1);
}

TEST_F(EngineTest, AFailedCommitIsHeldAndTriedAgainAndItsCallerIsToldAtOnce) {
  ASSERT_TRUE(Submit("a").ok());
  store_.Fail(absl::UnavailableError("disk I/O error"));
  const absl::Status answer = Submit("b");
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RefusalReason(answer), "STORE_TROUBLE");
  EXPECT_NE(answer.message().find("disk I/O error"), absl::string_view::npos);
  EXPECT_EQ(changes_, 1) << "no effect before the commit";
  EXPECT_EQ(RefusalReason(Submit("c")), "STORE_TROUBLE");
  EXPECT_EQ(RefusalReason(Read()), "STORE_TROUBLE") << "what is read is what is committed";
  ASSERT_TRUE(trouble().has_value());
  store_.Fail(absl::OkStatus());
  PassUntilTurn(2);
  EXPECT_FALSE(trouble().has_value());
  EXPECT_EQ(changes_, 2);
  EXPECT_EQ(store_.Load()->jobs.size(), 2) << "b took effect, c did not";
  EXPECT_TRUE(Submit("c").ok());
  EXPECT_TRUE(Read().ok());
  EXPECT_TRUE(failed_.empty());
}

TEST_F(EngineTest, WhatHappensMeanwhileWaitsInItsOrder) {
  store_.Fail(absl::UnavailableError("disk I/O error"));
  EXPECT_FALSE(Submit("a").ok());
  std::vector<std::string> order;
  std::atomic<int> answered = 0;
  for (const char* id : {"b", "c", "d"}) {
    engine_->Post([&order, id](cluster::Cluster&, absl::Time) { order.push_back(id); },
                  [&](const absl::Status& committed) { answered += committed.ok(); });
  }
  AwaitBeat();
  AwaitBeat();
  EXPECT_EQ(answered, 0);
  store_.Fail(absl::OkStatus());
  PassUntilTurn(2);
  ASSERT_TRUE(Read().ok());
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(order, (std::vector<std::string>{"b", "c", "d"}));
}

TEST_F(EngineTest, HeartbeatsCountFromTheirArrivalWhileACommitHangs) {
  ASSERT_TRUE(Submit("a").ok());
  engine_->Post(
      [](cluster::Cluster& cluster, absl::Time now) {
        EXPECT_TRUE(
            cluster.AttachAgent(1, {.node = "n", .incarnation = "i", .host = "n", .slots = 1}, now)
                .ok());
      },
      nullptr);
  ASSERT_TRUE(Read().ok());
  store_.Hang(true);
  engine_->Post(Submission("b"), nullptr);
  // The loop takes 20 seconds, twice the lease.
  std::vector<absl::Time> came;
  for (int second = 1; second <= 20; ++second) {
    millis_ = 1000 * second;
    engine_->Aside([&](cluster::Cluster& cluster, absl::Time at) {
      cluster.AgentHeard(1, at);
      came.push_back(at);
    });
    AwaitBeat();
  }
  ASSERT_EQ(came.size(), 20);
  EXPECT_EQ(came[4], absl::FromUnixSeconds(1005));
  store_.Hang(false);
  absl::Notification looked;
  engine_->Post(nullptr, [&](const absl::Status&) {
    const membership::Agent* agent = engine_->cluster().membership().agents().Find("n");
    EXPECT_NE(agent, nullptr);
    if (agent != nullptr) EXPECT_EQ(agent->last_seen, absl::FromUnixSeconds(1020));
    looked.Notify();
  });
  EXPECT_TRUE(looked.WaitForNotificationWithTimeout(kTestBound));
}

TEST_F(EngineTest, ASlowDiskIsNoPauseOfTheCoordinatorsOwn) {
  engine_->Post(
      [](cluster::Cluster& cluster, absl::Time now) {
        EXPECT_TRUE(
            cluster.AttachAgent(1, {.node = "n", .incarnation = "i", .host = "n", .slots = 1}, now)
                .ok());
      },
      nullptr);
  ASSERT_TRUE(Read().ok());
  store_.Hang(true);
  engine_->Post(Submission("b"), nullptr);
  // The agent is silent all the time and gets no new lease.
  for (int second = 1; second <= 30; ++second) {
    millis_ = 1000 * second;
    AwaitBeat();
  }
  store_.Hang(false);
  for (int i = 0; i < 100; ++i) {
    bool lost = false;
    absl::Notification looked;
    engine_->Post(nullptr, [&](const absl::Status&) {
      lost = engine_->cluster().membership().agents().Find("n") == nullptr;
      looked.Notify();
    });
    ASSERT_TRUE(looked.WaitForNotificationWithTimeout(kTestBound));
    if (lost) return;
  }
  ADD_FAILURE() << "the silent agent was never given up";
}

TEST_F(EngineTest, AfterAPauseOfTheCoordinatorsOwnEverybodyHasANewLease) {
  engine_->Post(
      [](cluster::Cluster& cluster, absl::Time now) {
        EXPECT_TRUE(
            cluster.AttachAgent(1, {.node = "n", .incarnation = "i", .host = "n", .slots = 1}, now)
                .ok());
      },
      nullptr);
  ASSERT_TRUE(Read().ok());
  millis_ = 60000;
  AwaitBeat();
  ASSERT_TRUE(Read().ok());
  absl::Notification looked;
  engine_->Post(nullptr, [&](const absl::Status&) {
    EXPECT_NE(engine_->cluster().membership().agents().Find("n"), nullptr);
    looked.Notify();
  });
  EXPECT_TRUE(looked.WaitForNotificationWithTimeout(kTestBound));
}

TEST_F(EngineTest, ACommitThatTakesLongKeepsNobodyWaiting) {
  store_.Hang(true);
  std::atomic<int> refused = 0;
  engine_->Request(Submission("a"), [&](const absl::Status& status) {
    refused += RefusalReason(status) == "STORE_TROUBLE";
  });
  PassUntilTurn(1);
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(RefusalReason(Submit("b")), "STORE_TROUBLE");
  store_.Hang(false);
  PassUntilTurn(2);
  EXPECT_EQ(store_.Load()->jobs.size(), 1);
}

TEST_F(EngineTest, OnAFullDiskTheReserveTakesTheCommitAndThenOnlyWhatMakesRoom) {
  store_.reserve = true;
  store_.Fail(absl::ResourceExhaustedError("database or disk is full"));
  EXPECT_TRUE(Submit("a").ok()) << "there was a reserve for it";
  ASSERT_TRUE(trouble().has_value());
  EXPECT_NE(trouble()->message.find("full"), std::string::npos);
  EXPECT_EQ(RefusalReason(Submit("b")), "STORE_TROUBLE");
  std::atomic<bool> reported = false;
  engine_->Post(nullptr, [&](const absl::Status&) { reported = true; });
  EXPECT_TRUE(Read().ok()) << "nothing is held";
  EXPECT_TRUE(Submit("room", &Engine::RequestRoom).ok());
  EXPECT_FALSE(reported);
  store_.room = true;
  PassUntilTurn(2);
  EXPECT_FALSE(trouble().has_value());
  ASSERT_TRUE(Submit("b").ok());
  EXPECT_TRUE(reported);
}

TEST_F(EngineTest, AStoreThatWasOpenedOnAFullDiskTakesOnlyWhatMakesRoom) {
  engine_.reset();
  store_.opened_short_of_room = true;
  StartEngine();
  EXPECT_EQ(RefusalReason(Submit("a")), "STORE_TROUBLE");
  ASSERT_TRUE(trouble().has_value());
  EXPECT_NE(trouble()->message.find("full"), std::string::npos);
  EXPECT_TRUE(Read().ok()) << "nothing is held";
  EXPECT_TRUE(Submit("room", &Engine::RequestRoom).ok());
  EXPECT_TRUE(trouble().has_value()) << "one deletion is not enough";
  store_.room = true;
  PassUntilTurn(2);
  EXPECT_FALSE(trouble().has_value());
  EXPECT_TRUE(Submit("a").ok());
}

TEST_F(EngineTest, DamagedDataIsTheEnd) {
  ASSERT_TRUE(Submit("a").ok());
  store_.Fail(absl::DataLossError("database disk image is malformed"));
  const absl::Status answer = Submit("b");
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(answer.message().find("malformed"), absl::string_view::npos);
  EXPECT_EQ(changes_, 1);
  // Later tasks are not taken, either: the state in memory is ahead of the store.
  store_.Fail(absl::OkStatus());
  const int commits = store_.commits();
  EXPECT_EQ(Submit("c").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store_.commits(), commits);
  EXPECT_EQ(failed_.size(), 1);
  EXPECT_EQ(store_.Load()->jobs.size(), 1);
}

TEST_F(EngineTest, WhatIsHeldIsTriedOnceMoreWhenItStops) {
  store_.Fail(absl::UnavailableError("disk I/O error"));
  EXPECT_FALSE(Submit("a").ok());
  std::atomic<int> answered = 0;
  engine_->Post(Submission("b"),
                [&](const absl::Status& status) { answered += absl::IsUnavailable(status); });
  store_.Fail(absl::OkStatus());
  engine_->Stop();
  EXPECT_GE(store_.Load()->jobs.size(), 1);
}

TEST_F(EngineTest, ItStopsAlsoWhileTheStoreIsInTrouble) {
  store_.Fail(absl::UnavailableError("disk I/O error"));
  EXPECT_FALSE(Submit("a").ok());
  std::atomic<int> answered = 0;
  engine_->Post(Submission("b"),
                [&](const absl::Status& status) { answered += absl::IsUnavailable(status); });
  engine_->Stop();
  EXPECT_EQ(answered, 1);
  EXPECT_TRUE(store_.Load()->jobs.empty());
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

TEST_F(EngineTest, ARetryWaitsWithABoundForAnEngineThatHangs) {
  ASSERT_TRUE(Submit("a").ok());
  absl::Notification started, go;
  engine_->Post(
      [&](cluster::Cluster&, absl::Time) {
        started.Notify();
        go.WaitForNotification();
      },
      nullptr);
  started.WaitForNotification();
  const auto late = ReadForRetry(engine_.get(), "a", absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(late.status())) << late.status();
  go.Notify();
  const auto job = ReadForRetry(engine_.get(), "a", kTestBound);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->id, "a");
  const auto none = ReadForRetry(engine_.get(), "b", kTestBound);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
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
  const int before = store_.commits();
  for (int i = 0; i < 50; ++i) {
    engine_->Post(
        [i](cluster::Cluster& cluster, absl::Time now) {
          EXPECT_TRUE(cluster.Submit({.job_id = std::to_string(i), .name = "x"}, now).ok());
        },
        nullptr);
  }
  go.Notify();
  ASSERT_TRUE(Submit("last").ok());
  EXPECT_LE(store_.commits() - before, 3);
}

}  // namespace
}  // namespace muster::service
