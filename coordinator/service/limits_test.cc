// Limits of a coordinator, over gRPC. errors_test has the limits of single requests;
// coordinator/cluster/limits_test has the limits of totals.
#include "coordinator/limits/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

using testing::EndsWith;

TEST_F(CoordinatorTest, ANodeWithTooManySlotsIsRefusedByName) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 4294967295);
  FakeAgent agent(address(), hello);
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(ErrorReason(refused), "TOO_MANY_SLOTS");
  EXPECT_EQ(ErrorMetadata(refused)["field"], "slots");
  EXPECT_EQ(ErrorMetadata(refused)["limit"], "4096");
  EXPECT_EQ(ErrorMetadata(refused)["node"], "n1");
  hello.set_slots(1);
  for (uint32_t i = 0; i <= 4096; ++i) hello.add_gpus()->set_index(i);
  FakeAgent with_gpus(address(), hello);
  const absl::Status too_many = FromGrpc(with_gpus.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorMetadata(too_many)["field"], "gpus") << too_many;
  EXPECT_EQ(Nodes().nodes_size(), 0);
  FakeAgent largest(address(), FakeAgent::Hello("n1", 4096));
  EXPECT_TRUE(largest.Welcomed());
}

TEST_F(CoordinatorTest, ANodeWithALongNameIsRefused) {
  FakeAgent agent(address(), FakeAgent::Hello(std::string(256, 'n'), 1));
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "FIELD_TOO_LONG") << refused;
  EXPECT_EQ(ErrorMetadata(refused)["field"], "muster.v1.AgentHello.node");
}

// Without a limit, each of the numbers would be a problem with its own path and text.
TEST_F(CoordinatorTest, AMegabyteOfZerosIsOneProblem) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = Spec();
  request.mutable_spec()->mutable_model()->mutable_mlp()->mutable_hidden()->Resize(1'000'000, 0);
  v1::ValidateJobResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->ValidateJob(&context, request, &response).ok());
  ASSERT_EQ(response.problems_size(), 1);
  EXPECT_EQ(response.problems(0).path(), "model.mlp.hidden");
  EXPECT_EQ(response.problems(0).message(), "found 1000000 elements; allowed: at most 4096");

  request.mutable_spec()->mutable_model()->mutable_mlp()->mutable_hidden()->Resize(16'000'000, 0);
  grpc::ClientContext larger;
  const absl::Status refused = FromGrpc(jobs_->ValidateJob(&larger, request, &response));
  EXPECT_EQ(ErrorReason(refused), "REQUEST_TOO_LARGE") << refused;
  EXPECT_EQ(ErrorMetadata(refused)["limit"], "1114112");
}

TEST_F(CoordinatorTest, AJobIdBeginsWithALetterOrADigit) {
  v1::Job job;
  for (const char* id : {"-a", "--all", "A", "a_b"}) {
    const absl::Status refused = FromGrpc(Submit(Spec(), id, &job));
    EXPECT_EQ(ErrorReason(refused), "JOB_SPEC_INVALID") << id;
    EXPECT_EQ(ErrorMetadata(refused)["field"], "job_id") << id;
  }
  EXPECT_TRUE(Submit(Spec(), "0-a", &job).ok());
  EXPECT_TRUE(Submit(Spec(), "a-", &job).ok());
}

TEST_F(CoordinatorTest, ALongErrorOfARankIsCutWithAMark) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(2, /*max_restarts=*/0), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  const std::string reason(kLimits.report_text_bytes + 7, 'x');
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Failed(reason, false, true)));
  EXPECT_THAT(Get("a").failure().reason(), EndsWith("xxx [7 more bytes]"));
}

// Two bytes of the message take fifty bytes in memory.
TEST_F(CoordinatorTest, AHelloThatIsTooLargeIsRefusedBeforeItIsParsed) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 1);
  for (size_t i = 0; i <= kLimits.first_message_bytes / 2; ++i) hello.add_running();
  FakeAgent agent(address(), hello);
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "MESSAGE_TOO_LARGE") << refused;
  EXPECT_EQ(ErrorMetadata(refused)["limit"], "2097152");
  EXPECT_EQ(Nodes().nodes_size(), 0);
}

TEST_F(CoordinatorTest, AHelloMayNotNameMoreProcessesThanAnyNodeHas) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 1);
  for (int i = 0; i <= kLimits.hello_processes; ++i) hello.add_exits();
  FakeAgent agent(address(), hello);
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "HELLO_INVALID") << refused;
}

TEST_F(CoordinatorTest, AfterTheHelloAMessageMayHaveFourMebibytes) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  ASSERT_TRUE(agent.Welcomed());
  v1::AgentMessage message;
  // The report has a part that this coordinator does not know.
  v1::WorkerReport report;
  report.GetReflection()->MutableUnknownFields(&report)->AddLengthDelimited(
      1000, std::string(kLimits.peer_message_bytes - 100, 'r'));
  report.SerializeToString(message.mutable_spooled_reports()->add_reports());
  ASSERT_TRUE(agent.Send(message));
  ASSERT_TRUE(agent.Take([](const v1::AgentDirective& d) { return d.has_spooled_reports_ack(); }));
  message.mutable_spooled_reports()->add_reports(std::string(200, 'r'));
  ASSERT_TRUE(agent.Send(message));
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "MESSAGE_TOO_LARGE") << refused;
  EXPECT_EQ(ErrorMetadata(refused)["limit"], "4194304");
}

TEST_F(CoordinatorTest, AMessageThatIsNoneIsRefusedByName) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 1);
  hello.set_host("\xff");
  FakeAgent agent(address(), hello);
  const absl::Status refused = FromGrpc(agent.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "MESSAGE_UNREADABLE") << refused;
}

TEST_F(CoordinatorTest, TheNamesOfOneNodesGpusLeaveTheListOfNodesReadable) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 1);
  hello.add_gpus()->set_name(std::string(200, 'g'));
  FakeAgent agent(address(), hello);
  ASSERT_TRUE(agent.Welcomed());
  const v1::ListNodesResponse nodes = Nodes();
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).gpus(0).name(), std::string(128, 'g') + " [72 more bytes]");
  hello.mutable_gpus(0)->set_uuid(std::string(65, 'u'));
  FakeAgent other(address(), hello);
  const absl::Status refused = FromGrpc(other.End().value_or(grpc::Status::OK));
  EXPECT_EQ(ErrorReason(refused), "FIELD_TOO_LONG") << refused;
  EXPECT_EQ(ErrorMetadata(refused)["field"], "muster.v1.Gpu.uuid");
}

}  // namespace
}  // namespace muster::service
