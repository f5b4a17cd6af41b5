#include "coordinator/jobs/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

// A job that FAILED in generation 1 and was then continued by command 3 with these changes.
Job Continued(std::vector<SettingChange> changes) {
  Job job = Running(1, 0);
  job.spec = "old";
  for (int i = 0; i < 2; ++i) job.commands.Append({.kind = v1::Operation::SET_LEARNING_RATE});
  for (const uint64_t number : {1, 2}) job.commands.Applied(number, number);
  OnExit(&job, 0, Signal(11), kTimeouts, At(1));
  OnNextAttempt(&job, At(2));
  job.commands.Append({.kind = v1::Operation::RESUME});
  Plan plan = job.plan;
  plan.max_restarts = 9;
  ChangeSettings(&job, {.spec = "new", .plan = plan, .changes = std::move(changes)}, "uid:7", 3,
                 At(2));
  return job;
}

TEST(ChangeSettings, AreRecordedWithTheirAttemptAndWhoAsked) {
  const Job job = Continued({{.path = "clip_grad_norm", .new_value = "1"}});
  EXPECT_EQ(job.spec, "new");
  EXPECT_EQ(job.plan.max_restarts, 9);
  ASSERT_EQ(job.setting_changes.size(), 1);
  EXPECT_EQ(job.setting_changes[0].attempt, 2);
  EXPECT_EQ(job.setting_changes[0].requester, "uid:7");
  EXPECT_EQ(job.events.back().reason, "SETTING_CHANGED");
  EXPECT_EQ(job.events.back().message, "clip_grad_norm: left out becomes 1, as uid:7 asked");
  EXPECT_EQ(LearningRateSince(job), 0) << "the rate of a checkpoint counts";
  EXPECT_EQ(job.commands.After(0)[1].when, commands::Delivery::When::kReplay);
}

TEST(ChangeSettings, ANewLearningRateIsNewerThanCheckpointsAndCommands) {
  const Job job = Continued({{.path = "optimizer.adamw.lr", .old_value = "1", .new_value = "2"}});
  EXPECT_EQ(LearningRateSince(job), 2) << "the next generation's checkpoints count";
  for (const uint64_t number : {0, 1}) {
    EXPECT_EQ(job.commands.After(0)[number].when, commands::Delivery::When::kNever);
  }
}

TEST(ChangeSettings, NothingChangesWithoutChanges) {
  const Job job = Continued({});
  EXPECT_EQ(job.spec, "old");
  EXPECT_TRUE(job.setting_changes.empty());
}

}  // namespace
}  // namespace muster::jobs
