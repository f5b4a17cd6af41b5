#include "coordinator/service/transfers.h"

#include "coordinator/cluster/event.h"
#include "coordinator/membership/refusal.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {
namespace {

jobs::Job JobWith(bool download) {
  jobs::Job job;
  job.id = "job";
  v1::Command contents;
  contents.mutable_gather_optimizer_state()->mutable_file()->set_download(download);
  job.commands.Append(
      {.kind = v1::Operation::GATHER_OPTIMIZER_STATE, .contents = contents.SerializeAsString()});
  return job;
}

commands::Outcome Done() {
  v1::OperationResult result;
  result.mutable_gathered_optimizer_state()->set_node("n1");
  result.mutable_gathered_optimizer_state()->set_bytes(12);
  return {.time = absl::UnixEpoch(), .result = result.SerializeAsString()};
}

TEST(DownloadOf, AFileThatIsDoneIsOnTheNodeThatWroteIt) {
  jobs::Job job = JobWith(true);
  job.commands.Applied(1, 5);
  job.commands.Finished(1, Done());
  const auto file = DownloadOf(job, 1);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->node, "n1");
  EXPECT_EQ(file->bytes, 12u);
}

TEST(DownloadOf, OtherOperationsHaveNone) {
  jobs::Job job = JobWith(true);
  EXPECT_EQ(RefusalReason(DownloadOf(job, 2).status()), "OPERATION_NOT_FOUND");
  EXPECT_EQ(RefusalReason(DownloadOf(job, 1).status()), "OPERATION_NOT_DONE");
  job.commands.Finished(1, {.time = absl::UnixEpoch(),
                            .code = absl::StatusCode::kResourceExhausted,
                            .message = "the disk is full"});
  const auto failed = DownloadOf(job, 1);
  EXPECT_EQ(RefusalReason(failed.status()), "OPERATION_FAILED");
  EXPECT_EQ(failed.status().message(),
            "operation 'job/1' failed (the disk is full): there is no file");
  // A file that was written to a path of the cluster cannot be downloaded.
  jobs::Job on_cluster = JobWith(false);
  on_cluster.commands.Finished(1, Done());
  EXPECT_EQ(RefusalReason(DownloadOf(on_cluster, 1).status()), "NO_DOWNLOAD");
}

TEST(AgentFor, TheNodesAgentMustBeAttached) {
  membership::Membership membership{membership::Timing()};
  const DownloadFile file{.node = "n1"};
  EXPECT_EQ(RefusalReason(AgentFor(file, membership).status()), "NODE_NOT_ATTACHED");
  membership::Agent agent{.node = "n1", .incarnation = "i"};
  membership.agents().Attach(agent, 8, absl::UnixEpoch());
  EXPECT_EQ(AgentFor(file, membership).value_or(0), 8u);
  membership.agents().Detached("n1", 8);
  EXPECT_TRUE(absl::IsUnavailable(AgentFor(file, membership).status()));
}

}  // namespace
}  // namespace muster::service
