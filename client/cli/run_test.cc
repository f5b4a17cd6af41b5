// Tests of `muster run` on a given coordinator, and of the errors that prevent a start of its own
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <thread>

#include "client/cli/cli_fixture.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, RunFollowsAJobOnAGivenCoordinator) {
  service_.OnSubmit([this](const v1::Job& job) {
    v1::Job done = job;
    done.set_state(v1::Job::SUCCEEDED);
    service_.Put(done);
  });
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml")}), kDone);
  EXPECT_THAT(out(), StartsWith("job tiny-1 SUCCEEDED"));
}

TEST_F(CliTest, AnInterruptOfRunStopsTheJobAndIs130) {
  std::thread terminal([this] {
    service_.AwaitWatches(1);
    interrupts_.Deliver();
  });
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml")}), kInterrupted);
  terminal.join();
  EXPECT_THAT(out(), StartsWith("job tiny-1 CANCELLED"));
}

TEST_F(CliTest, ASecondInterruptWaitsForNothing) {
  service_.StopLeadsTo(v1::Job::STOPPING);
  std::thread terminal([this] {
    service_.AwaitWatches(1);
    interrupts_.Deliver();
    interrupts_.Deliver();
  });
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml")}), kInterrupted);
  terminal.join();
}

TEST_F(CliTest, RunRefusesMoreRanksThanSlots) {
  environment_.erase("MUSTER_ADDRESS");
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml"), "--slots", "1"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("job.yaml:2: world_size: found 2; allowed: at most 1"));
}

TEST_F(CliTest, RunSaysWhereMusterdIsMissing) {
  environment_.erase("MUSTER_ADDRESS");
  environment_["MUSTER_BIN_DIR"] = folder_.path();
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml")}), kOtherError);
  EXPECT_THAT(err(), AllOf(HasSubstr("musterd"), HasSubstr(folder_.path())));
}

TEST_F(CliTest, RunShowsWhyItsCoordinatorDidNotStart) {
  environment_.erase("MUSTER_ADDRESS");
  environment_["MUSTER_BIN_DIR"] = folder_.path();
  Write("musterd", "#!/bin/sh\nseq 1 12\necho the disk is on fire\nexit 7\n");
  ASSERT_EQ(chmod(folder_.Path("musterd").c_str(), 0755), 0);
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml")}), kOtherError);
  EXPECT_THAT(err(), AllOf(HasSubstr("exit code 7"), HasSubstr("  4\n"), Not(HasSubstr("  3\n")),
                           HasSubstr("the disk is on fire")));
}

}  // namespace
}  // namespace muster::cli
