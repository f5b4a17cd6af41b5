// A running job with saved checkpoints, in a World. For tests of what the cluster knows of a job's
// folder.
#ifndef MUSTER_COORDINATOR_CLUSTER_SAVED_JOB_FIXTURE_H_
#define MUSTER_COORDINATOR_CLUSTER_SAVED_JOB_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"
#include "coordinator/jobs/checkpoints.h"

namespace muster::cluster {

inline std::string Path(uint64_t step, uint64_t generation) {
  return absl::StrCat("/ckpt/job/step-", step, "-g", generation);
}

inline std::vector<uint64_t> Steps(const std::vector<jobs::Checkpoint>& checkpoints) {
  std::vector<uint64_t> steps;
  for (const jobs::Checkpoint& checkpoint : checkpoints) steps.push_back(checkpoint.step);
  return steps;
}
using StepList = std::vector<uint64_t>;

// A job of two ranks on node 'a' that trains, with checkpoints at steps 5 and 10.
class SavedJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.Start("job", 2);
    Report({.sequence = 2, .what = CheckpointWritten{5, Path(5, 1)}});
    Report({.sequence = 3, .what = CheckpointWritten{10, Path(10, 1)}});
  }

  void Report(const cluster::Report& report, PeerStreamId stream = 10) {
    ASSERT_TRUE(world_.Report(stream, report).ok());
  }
  const jobs::Job& job() { return world_.job("job"); }
  // Both processes exit as they were told.
  void ExitAll() {
    const jobs::Job before = job();
    for (uint32_t rank = 0; rank < 2; ++rank) world_.Exit(1, before.Worker(rank), 15);
  }
  // Ranks 0 and 1 of the newest generation attach.
  std::vector<WelcomeWorker> AttachAll() {
    world_.effects.clear();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(world_.AttachWorker(10 * job().generation + rank, job().Worker(rank)).ok());
    }
    return world_.Orders<SendToWorker, WelcomeWorker>();
  }
  PeerStreamId rank0() { return 10 * job().generation; }
  void Restart() {
    world_.Restart();
    ASSERT_TRUE(world_.Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = 2}).ok());
  }
  void Halt() {
    Report({.sequence = 4,
            .what = jobs::ReportedFailure{.step = 0,
                                          .reason = "none can be read in /ckpt/job",
                                          .permanent = true,
                                          .checkpoints_unreadable = true}});
    ExitAll();
  }
  absl::StatusOr<uint64_t> Resume(bool from_scratch = false, const std::string& from = "") {
    CommandRequest request{.job_id = "job",
                           .command = {.kind = v1::Operation::RESUME},
                           .from_scratch = from_scratch,
                           .from = from};
    const auto number = world_.cluster().Command(request, world_.now());
    world_.Commit();
    return number;
  }

  World world_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_SAVED_JOB_FIXTURE_H_
