#include "client/api/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
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
    server_ = Server::Start(ServerOptions::InsecureLoopback(), {&service_}).value();
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
  EXPECT_EQ(jobs->jobs_size(), 5);
  EXPECT_EQ(jobs->next_page_token(), "");
}

TEST_F(ClientTest, ListStopsAtItsLimitAndGoesOnAfterIt) {
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    service_.Put(MakeJob(id, *id == 'c' ? v1::Job::FAILED : v1::Job::QUEUED));
  }
  const auto first = client_->List({.states = {v1::Job::QUEUED}, .limit = 3});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->jobs_size(), 3);
  EXPECT_EQ(first->jobs(2).id(), "d");
  EXPECT_NE(first->next_page_token(), "");
  const auto rest =
      client_->List({.states = {v1::Job::QUEUED}, .page_token = first->next_page_token()});
  ASSERT_TRUE(rest.ok()) << rest.status();
  ASSERT_EQ(rest->jobs_size(), 1);
  EXPECT_EQ(rest->jobs(0).id(), "e");
  EXPECT_EQ(rest->next_page_token(), "");
}

TEST_F(ClientTest, AChangeWhoseAnswerIsLostIsRepeatedWithItsRequestIdAndActsOnce) {
  v1::JobSpec spec;
  spec.set_name("x");
  service_.LoseAnswers(2);
  // A second execution would find the id taken.
  const auto submitted = client_->Submit(spec, "a");
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  service_.LoseAnswers(1);
  const auto stopped = client_->Stop("a");
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(stopped->state(), v1::Job::CANCELLED);
  service_.LoseAnswers(1);
  const auto deleted = client_->Delete("a");
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->job_id(), "a");
  const std::vector<std::string> ids = service_.requests();
  ASSERT_EQ(ids.size(), 7);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_EQ(ids[3], ids[4]);
  EXPECT_EQ(ids[5], ids[6]);
  EXPECT_NE(ids[0], ids[3]);
  EXPECT_NE(ids[3], ids[5]);
}

TEST_F(ClientTest, AChangeWhoseRequestIsLostIsRepeated) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  service_.LoseRequests(2);
  EXPECT_TRUE(client_->Stop("a").ok());
  EXPECT_EQ(service_.requests().size(), 3);
}

TEST_F(ClientTest, AReadWhoseConnectionBreaksIsRepeated) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  service_.LoseReads(2);
  const auto job = client_->Get("a");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id(), "a");
}

TEST_F(ClientTest, AChangeIsGivenUpAfterItsBound) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  service_.LoseRequests(1000000);
  const auto stopped = client_->Stop("a", {.retry = {.retry_for = absl::ZeroDuration()}});
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_.requests().size(), 1);
}

TEST_F(ClientTest, AChangeIsRepeatedUntilItsBound) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  service_.LoseRequests(1000000);
  const auto stopped = client_->Stop("a", {.retry = {.retry_for = absl::Milliseconds(50)}});
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(service_.requests().size(), 1);
}

TEST_F(ClientTest, CancellationEndsTheRepeats) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  service_.LoseRequests(1000000);
  Cancellation cancellation;
  cancellation.Cancel();
  const auto stopped =
      client_->Stop("a", {.retry = {.retry_for = absl::Hours(1), .cancellation = &cancellation}});
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, ErrorsOfAChangeAreNotRepeated) {
  EXPECT_EQ(ErrorReason(client_->Delete("none").status()), "JOB_NOT_FOUND");
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  EXPECT_EQ(ErrorReason(client_->Delete("a").status()), "JOB_NOT_ENDED");
  EXPECT_EQ(service_.requests().size(), 2);
}

TEST_F(ClientTest, WatchGivesEachChangeOnceAndEndsWithTheJob) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  std::vector<uint64_t> steps;
  const absl::Status status = client_->Watch("a", {}, [&](const v1::Job& job) {
    steps.push_back(job.step());
    if (job.step() < 4) {
      service_.Put(
          MakeJob("a", job.step() < 3 ? v1::Job::RUNNING : v1::Job::FAILED, job.step() + 1));
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4));
}

TEST_F(ClientTest, WatchEndsWhenItsCallerHasEnough) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  int seen = 0;
  const absl::Status status =
      client_->Watch("a", {}, [&seen](const v1::Job&) { return ++seen < 1; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 1);
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

TEST_F(ClientTest, WatchGoesOnWhereTheStreamEndsInGoodOrderBeforeTheJob) {
  service_.Put(MakeJob("a", v1::Job::RUNNING, 1));
  std::vector<uint64_t> steps;
  const absl::Status status = client_->Watch("a", {}, [&](const v1::Job& job) {
    steps.push_back(job.step());
    if (job.step() == 1) {
      service_.BreakStreams(grpc::Status::OK);
      service_.Put(MakeJob("a", v1::Job::SUCCEEDED, 2));
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2));
}

TEST_F(ClientTest, LogsThatAreFollowedResumeAfterTheLastLine) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  v1::LogLine first, second;
  first.set_sequence(1);
  second.set_sequence(2);
  service_.AddLog("a", first);
  std::vector<uint64_t> lines;
  const absl::Status status =
      client_->Logs("a", std::nullopt, true, {}, [&](const v1::LogLine& line) {
        lines.push_back(line.sequence());
        if (line.sequence() != 1) return;
        service_.BreakStreams();
        service_.AddLog("a", second);
        service_.Put(MakeJob("a", v1::Job::SUCCEEDED));
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(lines, ElementsAre(1, 2));
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
        server_ = Server::Start({.listen = {address}, .insecure = true}, {&service_}).value();
      });
    }
    return true;
  });
  restart.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(steps, ElementsAre(1, 2));
}

TEST_F(ClientTest, FollowedMetricsComeOnceEachAlsoOverBrokenStreams) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  const auto add = [this](uint64_t step, const std::string& pass) {
    v1::StepMetrics entry;
    entry.set_step(step);
    if (pass == "v") entry.mutable_validation()->set_loss(1);
    if (pass == "t") entry.mutable_test()->set_loss(1);
    service_.AddStep("a", entry);
  };
  add(0, "v");
  std::vector<std::string> seen;
  // Each entry is followed by a break, and the next entry comes after the break: also between a
  // step and the pass after the step. The timeout ends a wait for an entry that never comes.
  const absl::Status status = client_->Metrics(
      "a", /*follow=*/true, {.timeout = absl::Seconds(30)}, [&](const v1::StepMetrics& entry) {
        const char* kind = entry.has_validation() ? "v" : entry.has_test() ? "t" : "";
        seen.push_back(absl::StrCat(kind, entry.step()));
        service_.BreakStreams();
        if (seen.back() == "v0") add(1, "");
        if (seen.back() == "1") add(1, "t");
        if (seen.back() == "t1") add(1, "v");
        if (seen.back() == "v1") add(2, "");
        if (seen.back() == "2") service_.Put(MakeJob("a", v1::Job::SUCCEEDED, 2));
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ElementsAre("v0", "1", "t1", "v1", "2"));
}

TEST_F(ClientTest, MetricsWithoutFollowEndWithWhatThereIs) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  v1::StepMetrics entry;
  entry.set_step(1);
  service_.AddStep("a", entry);
  int seen = 0;
  EXPECT_TRUE(
      client_->Metrics("a", /*follow=*/false, {}, [&](const v1::StepMetrics&) { ++seen; }).ok());
  EXPECT_EQ(seen, 1);
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

TEST_F(ClientTest, WatchOfACoordinatorThatStaysAwayEndsAtItsBoundOrDeadline) {
  const std::pair<StreamOptions, absl::StatusCode> cases[] = {
      {{.retry_for = absl::Milliseconds(50)}, absl::StatusCode::kUnavailable},
      {{.retry_for = absl::Hours(1), .timeout = absl::Seconds(1)},
       absl::StatusCode::kDeadlineExceeded},
  };
  for (const auto& [options, code] : cases) {
    server_ = Server::Start(ServerOptions::InsecureLoopback(), {&service_}).value();
    client_ = MusterClient::Connect(server_->address()).value();
    service_.Put(MakeJob("a", v1::Job::RUNNING));
    std::thread end;
    const absl::Status status = client_->Watch("a", options, [&](const v1::Job&) {
      end = std::thread([this] {
        service_.BreakStreams();
        server_.reset();
      });
      return true;
    });
    end.join();
    EXPECT_EQ(status.code(), code) << status;
  }
}

TEST_F(ClientTest, WaitEndsAtItsDeadline) {
  service_.Put(MakeJob("a", v1::Job::RUNNING));
  const auto job = client_->Wait("a", {.timeout = absl::Milliseconds(50)});
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
       {client_->Get("a").status(), client_->Wait("a", {.retry_for = absl::Hours(1)}).status(),
        client_->Stop("a", {.retry = {.retry_for = absl::Hours(1)}}).status(),
        client_->Submit({}, "a", {.retry_for = absl::Hours(1)}).status(),
        client_->Delete("a", {.retry_for = absl::Hours(1)}).status(),
        client_->Read(&v1::ClusterService::Stub::ListNodes, {}).status(),
        client_->Logs("a", std::nullopt, true, {.retry_for = absl::Hours(1)},
                      [](const v1::LogLine&) {})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), HasSubstr(address));
  }
}

TEST(MusterClient, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "host", "host:", ":1", "host:port", "host:70000", "host:-1",
                              "host:99999999999999999999"}) {
    EXPECT_EQ(MusterClient::Connect(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_TRUE(MusterClient::Connect("[::1]:7070").ok());
}

}  // namespace
}  // namespace muster::client
