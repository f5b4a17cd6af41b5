#include "client/cli/same_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using What = SameCommand::What;

v1::JobSpec Spec(double rate = 0.1) {
  v1::JobSpec spec;
  spec.set_name("tiny");
  spec.set_world_size(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(rate);
  return spec;
}

v1::Job JobOf(const std::string& id, v1::Job::State state, const std::string& file = "/job.yaml",
              double rate = 0.1) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.set_job_file(file);
  job.set_step(7);
  job.set_attempt(1);
  *job.mutable_spec() = Spec(rate);
  return job;
}

SameCommand Decided(const std::vector<v1::Job>& jobs, Wish wish = Wish::kGoOn,
                    const std::string& file = "/job.yaml") {
  return Decide(jobs, file, Spec(), wish);
}

TEST(SameCommand, AJobThatHasNotEndedGoesOn) {
  for (const auto state : {v1::Job::QUEUED, v1::Job::RUNNING, v1::Job::RECOVERING}) {
    const SameCommand same = Decided({JobOf("new", v1::Job::FAILED), JobOf("a", state)});
    EXPECT_EQ(same.what, What::kFollow);
    EXPECT_EQ(same.job.id(), "a");
    EXPECT_EQ(same.why, "job a continues from step 7");
  }
  // From standard input, or before this file was moved.
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING, "")}).what, What::kFollow);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING)}, Wish::kGoOn, "/other.yaml").what,
            What::kFollow);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::STOPPING)}).what, What::kAwaitEnd);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING)}, Wish::kAnotherJob).what, What::kStop);
}

TEST(SameCommand, AChangedFileIsRefusedWithTheSettingAndBothValues) {
  const SameCommand same = Decided({JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5)});
  EXPECT_EQ(same.what, What::kRefuse);
  EXPECT_THAT(same.why, HasSubstr("optimizer.sgd.lr: 0.5 -> 0.1"));
  EXPECT_THAT(same.why, HasSubstr("--new"));
  const SameCommand another = Decided({JobOf("a", v1::Job::RUNNING, "/other.yaml", 0.5)});
  EXPECT_EQ(another.what, What::kRefuse);
  EXPECT_THAT(another.why, HasSubstr("the unfinished job a of /other.yaml"));
  v1::Job late = JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5);
  late.set_reason("TIME_LIMIT");
  EXPECT_EQ(Decided({late}).what, What::kRefuse);
}

TEST(SameCommand, WhatARetryHasChangedIsNoChangeOfTheFile) {
  v1::Job job = JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5);
  job.add_setting_changes()->set_path("optimizer.sgd.lr");
  EXPECT_EQ(Decided({job}).what, What::kFollow);
  job.mutable_spec()->set_seed(3);
  EXPECT_THAT(Decided({job}).why, HasSubstr("with other settings: seed: 3 -> left out."));
}

TEST(SameCommand, TheNextAttemptMayGetTheValuesOfSet) {
  const v1::Job job = JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5);
  const std::vector<std::string> settings = {"optimizer.sgd.lr=0.1"};
  EXPECT_EQ(Decide({job}, "/job.yaml", Spec(), Wish::kNextAttempt, settings).what,
            What::kNextAttempt);
  EXPECT_EQ(Decide({job}, "/job.yaml", Spec(), Wish::kNextAttempt).what, What::kRefuse)
      << "the file itself was changed";
}

TEST(SameCommand, OneThatHasEndedIsFollowedByAnotherUnlessItFailed) {
  EXPECT_EQ(Decided({}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::SUCCEEDED)}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::CANCELLED)}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED, "/other.yaml")}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, Wish::kGoOn, "").what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("b", v1::Job::SUCCEEDED), JobOf("a", v1::Job::FAILED)}).what,
            What::kSubmit)
      << "the newest counts";
  const SameCommand failed = Decided({JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5)});
  EXPECT_EQ(failed.what, What::kFailed);
  EXPECT_THAT(failed.why, HasSubstr("changed since: optimizer.sgd.lr: 0.5 -> 0.1"));
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, Wish::kAnotherJob).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, Wish::kNextAttempt).what, What::kNextAttempt);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::CANCELLED)}, Wish::kNextAttempt).what,
            What::kNextAttempt);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::SUCCEEDED)}, Wish::kNextAttempt).what, What::kRefuse);
  EXPECT_EQ(Decided({}, Wish::kNextAttempt).what, What::kRefuse);
}

TEST(SameCommand, OneThatRanOutOfTimeBeginsItsNextAttempt) {
  v1::Job job = JobOf("a", v1::Job::FAILED);
  job.set_reason("TIME_LIMIT");
  job.set_state_reason("it has run for its time_limit, 1h");
  const SameCommand same = Decided({job});
  EXPECT_EQ(same.what, What::kNextAttempt);
  EXPECT_EQ(same.why,
            "job a: it has run for its time_limit, 1h; attempt 2 continues from its newest "
            "checkpoint");
}

}  // namespace
}  // namespace muster::cli
