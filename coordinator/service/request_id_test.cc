// Repeated requests, also to the next coordinator, which act once.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/store/faulty_store.h"

namespace muster::service {
namespace {

TEST_F(CoordinatorTest, IdsAndRequestIdsAreTakenOnce) {
  v1::Job job;
  const std::string request_id = NewUuid();
  ASSERT_TRUE(Submit(Spec(), "", &job, request_id).ok());
  EXPECT_EQ(job.id(), "tiny-1");
  v1::Job again;
  ASSERT_TRUE(Submit(Spec(), "", &again, request_id).ok());
  EXPECT_EQ(again.id(), "tiny-1");
  EXPECT_EQ(ErrorReason(FromGrpc(Submit(Spec(3), "", &again, request_id))), "REQUEST_ID_REUSED");
  const grpc::Status taken = Submit(Spec(), "tiny-1", &again);
  EXPECT_EQ(taken.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorReason(FromGrpc(taken)), "JOB_ALREADY_EXISTS");
}

TEST_F(CoordinatorTest, ARequestWithTheOptionsOfAPluginIsTheSameWhenItComesAgain) {
  const auto spec = [](int first, int step) {
    v1::JobSpec spec = Spec();
    spec.mutable_model()->mutable_plugin()->set_path("/p.so");
    spec.mutable_model()->mutable_plugin()->set_name("p");
    // The options are inserted in another order, as another client may do.
    for (int i = first; i >= 0 && i < 20; i += step) {
      (*spec.mutable_model()->mutable_plugin()->mutable_options())[absl::StrCat("option", i)] = "x";
    }
    return spec;
  };
  v1::Job job;
  const std::string request_id = NewUuid();
  ASSERT_TRUE(Submit(spec(0, 1), "", &job, request_id).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Submit(i % 2 == 0 ? spec(19, -1) : spec(0, 1), "", &job, request_id).ok());
  }
}

// A coordinator that is killed between its commit and its answer.
class LostAnswerTest : public CoordinatorTest {
 protected:
  std::unique_ptr<store::Store> Wrap(std::unique_ptr<store::SqliteStore> store) override {
    auto faulty = std::make_unique<store::FaultyStore>(std::move(store));
    if (dying_) faulty->FailAfterwards(absl::AbortedError("killed"));
    return faulty;
  }
  // Makes the call to a coordinator that dies during the call, and again to the next coordinator.
  void Twice(const std::function<grpc::Status()>& call) {
    StopCoordinator();
    dying_ = true;
    StartCoordinator();
    EXPECT_EQ(call().error_code(), grpc::StatusCode::UNAVAILABLE);
    StopCoordinator();
    dying_ = false;
    StartCoordinator();
    const grpc::Status again = call();
    EXPECT_TRUE(again.ok()) << again.error_message();
  }

  // Whether the next coordinator dies during its first commit.
  bool dying_ = false;
};

TEST_F(LostAnswerTest, ARepeatActsOnceAndGetsTheFirstAnswer) {
  v1::Job job;
  v1::DeleteJobResponse deleted;
  const std::string submit = NewUuid(), stop = NewUuid(), remove = NewUuid();
  Twice([&] { return Submit(Spec(), "", &job, submit); });
  EXPECT_EQ(job.id(), "tiny-1");
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 1);
  Twice([&] { return Stop("tiny-1", &job, stop); });
  EXPECT_EQ(job.state(), v1::Job::CANCELLED);
  Twice([&] { return Delete("tiny-1", &deleted, remove); });
  EXPECT_EQ(deleted.job_id(), "tiny-1");
  coordinator_.reset();
  EXPECT_TRUE(store_->Load()->jobs.empty());
}

}  // namespace
}  // namespace muster::service
