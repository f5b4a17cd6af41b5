#include "common/rpc/call_times.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/holding_service.h"
#include "common/rpc/rpc.h"
#include "common/steady/condition.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster {
namespace {

// A service that knows one job.
class OneJob final : public v1::JobService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(request->job_id() == "a"
                        ? grpc::Status::OK
                        : grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job"));
    return reactor;
  }
};

class CallTimesTest : public testing::Test {
 protected:
  CallTimesTest() {
    ServerOptions options = ServerOptions::InsecureLoopback();
    options.on_call_ended = [this](const EndedCall& call) {
      absl::MutexLock lock(&mutex_);
      ended_.push_back(call);
      changed_.Changed();
    };
    auto server = Server::Start(options, {&jobs_, &agents_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Waits for so many calls that have ended, and returns them.
  std::vector<EndedCall> Ended(size_t count) {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(mutex_, kTestBound, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ended_.size() >= count;
    }));
    return ended_;
  }
  grpc::Status Get(const std::string& job_id) {
    const auto stub = v1::JobService::NewStub(OpenChannel(server_->address()));
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    return stub->GetJob(&context, request, &job);
  }

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::vector<EndedCall> ended_ ABSL_GUARDED_BY(mutex_);
  OneJob jobs_;
  HoldingService agents_;
  std::unique_ptr<Server> server_;
};

TEST_F(CallTimesTest, ACallIsToldWithItsMethodAndCode) {
  EXPECT_TRUE(Get("a").ok());
  EXPECT_EQ(Get("b").error_code(), grpc::StatusCode::NOT_FOUND);
  const std::vector<EndedCall> ended = Ended(2);
  EXPECT_EQ(ended[0].method, "/muster.v1.JobService/GetJob");
  EXPECT_EQ(ended[0].code, absl::StatusCode::kOk);
  EXPECT_GE(ended[0].duration, absl::ZeroDuration());
  EXPECT_LT(ended[0].duration, kTestBound);
  EXPECT_EQ(ended[1].code, absl::StatusCode::kNotFound);
}

TEST_F(CallTimesTest, AStreamIsNotTold) {
  const auto stub = v1::AgentService::NewStub(OpenChannel(server_->address()));
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  ASSERT_TRUE(agents_.AwaitBegun(1));
  agents_.Release();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Get("a").ok());
  EXPECT_EQ(Ended(1)[0].method, "/muster.v1.JobService/GetJob");
}

}  // namespace
}  // namespace muster
