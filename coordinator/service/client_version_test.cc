#include "coordinator/service/admission.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/coordinator_fixture.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

absl::StatusCode CodeOf(const std::string& user_agent) {
  return CheckClientVersion(user_agent, "1.4.2").code();
}

TEST(ClientVersion, OneMinorVersionApartIsServed) {
  for (const char* version : {"1.3.0", "1.3.9", "1.4.0", "1.4.7", "1.5.0"}) {
    EXPECT_EQ(CodeOf(std::string("muster/") + version + " grpc-c++/1.51.1"), absl::StatusCode::kOk)
        << version;
  }
}

TEST(ClientVersion, MoreIsRefusedByName) {
  for (const char* version : {"1.2.9", "0.4.2", "0.9.0"}) {
    const absl::Status status = CheckClientVersion(std::string("muster/") + version, "1.4.2");
    EXPECT_EQ(RefusalReason(status), "CLIENT_TOO_OLD") << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr("update the client")) << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr(version));
  }
  for (const char* version : {"1.6.0", "2.0.0", "2.4.2"}) {
    const absl::Status status = CheckClientVersion(std::string("muster/") + version, "1.4.2");
    EXPECT_EQ(RefusalReason(status), "CLIENT_TOO_NEW") << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr("update the coordinator")) << version;
  }
}

TEST(ClientVersion, ProgramsThatSayNoVersionAreServed) {
  for (const char* other : {"", "grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)", "muster/",
                            "muster/x.y", "muster/7", "grpcurl/1.8 muster/9.9.9"}) {
    EXPECT_EQ(CodeOf(other), absl::StatusCode::kOk) << other;
  }
}

class ClientVersionOverTheWire : public CoordinatorTest {
 protected:
  // Returns a client whose header user-agent begins with `prefix`.
  std::unique_ptr<v1::JobService::Stub> Client(const std::string& prefix) {
    grpc::ChannelArguments arguments;
    arguments.SetUserAgentPrefix(prefix);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::JobService::NewStub(
        grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments));
  }
  grpc::Status List(const std::string& prefix) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(kTestBound));
    v1::ListJobsResponse response;
    return Client(prefix)->ListJobs(&context, {}, &response);
  }
  grpc::StatusCode Watch(const std::string& prefix) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(kTestBound));
    v1::WatchJobRequest request;
    request.set_job_id("nobody");
    v1::Job job;
    const auto client = Client(prefix);
    const auto reader = client->WatchJob(&context, request);
    while (reader->Read(&job)) {
    }
    return reader->Finish().error_code();
  }
};

TEST_F(ClientVersionOverTheWire, ACallOfATooNewClientIsRefused) {
  EXPECT_TRUE(List("grpcurl/1.8").ok());
  const grpc::Status refused = List("muster/99.0.0");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(refused)), "CLIENT_TOO_NEW");
  EXPECT_EQ(Watch("grpcurl/1.8"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Watch("muster/99.0.0"), grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace muster::service
