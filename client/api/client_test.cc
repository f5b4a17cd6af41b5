#include "client/api/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/api/fake_job_service.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"

namespace muster::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Job MakeJob(const std::string& id, v1::Job::State state, uint64_t step = 0) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.set_step(step);
  return job;
}

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = Server::Start({}, {&service_}).value();
    client_ = MusterClient::Connect(server_->address()).value();
  }

  FakeJobService service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<MusterClient> client_;
};

TEST_F(ClientTest, KeepsTheReasonOfAnError) {
  const auto job = client_->Get("none");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(job.status()), "JOB_NOT_FOUND");
}

TEST_F(ClientTest, ListTurnsAllPages) {
  for (const char* id : {"a", "b", "c", "d", "e"}) service_.Put(MakeJob(id, v1::Job::QUEUED));
  const auto jobs = client_->List();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->size(), 5);
}

TEST_F(ClientTest, WatchGivesEachChangeOnceAndEndsWithTheJob) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  std::vector<uint64_t> steps;
  const absl::Status status = client_->Watch("a", {}, [&](const v1::Job& job) {
    steps.push_back(job.step());
    if (job.step() < 4) {
      service_.Put(MakeJob("a", job.step() < 3 ? v1::Job::RUNNING : v1::Job::FAILED, job.step() + 1));
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4));
}

TEST_F(ClientTest, WatchResumesAfterABrokenStreamFromTheLastVersion) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  std::vector<uint64_t> steps;
  const absl::Status status = client_->Watch("a", {}, [&](const v1::Job& job) {
    steps.push_back(job.step());
    if (job.step() == 1) {
      service_.BreakStreams();
      service_.Put(MakeJob("a", v1::Job::SUCCEEDED, 2));
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2));
  EXPECT_THAT(service_.watches(), ElementsAre(0, 1));
}

TEST_F(ClientTest, WatchSurvivesARestartOfTheCoordinator) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  const std::string address = server_->address();
  std::vector<uint64_t> steps;
  std::thread restart;
  const absl::Status status = client_->Watch("a", {}, [&](const v1::Job& job) {
    steps.push_back(job.step());
    if (job.step() == 1) {
      restart = std::thread([this, address] {
        service_.BreakStreams();
        server_.reset();
        service_.Put(MakeJob("a", v1::Job::SUCCEEDED, 2));
        server_ = Server::Start({.listen = address}, {&service_}).value();
      });
    }
    return true;
  });
  restart.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2));
}

TEST_F(ClientTest, WatchGivesUpAfterItsBound) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  const absl::Status status =
      client_->Watch("a", {.retry_for = absl::ZeroDuration()}, [&](const v1::Job& job) {
        service_.BreakStreams();
        return true;
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(server_->address()));
}

TEST_F(ClientTest, WaitEndsAtItsDeadline) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  const auto job = client_->Wait("a", {.deadline = absl::Now() + absl::Milliseconds(50)});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, CancellationEndsAWatch) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  Cancellation cancellation;
  std::thread other([&] {
    service_.AwaitWatches(1);
    cancellation.Cancel();
  });
  const auto job = client_->Wait("a", {.cancellation = &cancellation});
  other.join();
  EXPECT_EQ(job.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_->Wait("a", {.cancellation = &cancellation}).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, LogsAreThoseOfTheRank) {
  service_.Put(MakeJob("a", v1::Job::SUCCEEDED));
  for (int i = 1; i <= 4; ++i) {
    v1::LogLine line;
    line.set_sequence(i);
    line.set_rank(i % 2);
    service_.AddLog("a", line);
  }
  std::vector<uint64_t> lines;
  const auto add = [&](const v1::LogLine& line) { lines.push_back(line.sequence()); };
  ASSERT_TRUE(client_->Logs("a", std::nullopt, false, {}, add).ok());
  ASSERT_TRUE(client_->Logs("a", 1, false, {}, add).ok());
  EXPECT_THAT(lines, ElementsAre(1, 2, 3, 4, 1, 3));
}

TEST_F(ClientTest, AnAbsentCoordinatorIsAnErrorAtOnceAndNamed) {
  const std::string address = server_->address();
  server_.reset();
  for (const absl::Status& status :
       {client_->Get("a").status(), client_->Wait("a", {}).status(),
        client_->Logs("a", std::nullopt, true, {}, [](const v1::LogLine&) {})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), HasSubstr(address));
  }
}

TEST(MusterClient, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "host", "host:", ":1", "host:port", "host:70000", "host:-1"}) {
    EXPECT_EQ(MusterClient::Connect(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_TRUE(MusterClient::Connect("[::1]:7070").ok());
}

}  // namespace
}  // namespace muster::client
