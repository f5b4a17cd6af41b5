#include "client/cli/same_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
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

SameCommand Decided(const std::vector<v1::Job>& jobs, RerunMode mode = RerunMode::kGoOn,
                    const std::string& file = "/job.yaml") {
  return Decide(jobs, file, Spec(), mode);
}

TEST(SameCommand, AJobThatHasNotEndedGoesOn) {
  for (const auto state : {v1::Job::QUEUED, v1::Job::RUNNING, v1::Job::RECOVERING}) {
    const SameCommand same = Decided({JobOf("new", v1::Job::FAILED), JobOf("a", state)});
    EXPECT_EQ(same.what, What::kFollow);
    EXPECT_EQ(same.job.id(), "a");
    EXPECT_EQ(same.why, "job a continues; it had reached step 7");
  }
  // A job from standard input, or from before this file was moved.
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING, "")}).what, What::kFollow);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING)}, RerunMode::kGoOn, "/other.yaml").what,
            What::kFollow);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::STOPPING)}).what, What::kAwaitEnd);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::RUNNING)}, RerunMode::kAnotherJob).what, What::kStop);
}

TEST(SameCommand, AChangedFileIsRefusedWithTheSettingAndBothValues) {
  const SameCommand same = Decided({JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5)});
  EXPECT_EQ(same.what, What::kRefuse);
  EXPECT_THAT(same.why, HasSubstr("optimizer.sgd.lr: 0.5 -> 0.1"));
  EXPECT_THAT(same.why, HasSubstr("--new"));
  const SameCommand another = Decided({JobOf("a", v1::Job::RUNNING, "/other.yaml", 0.5)});
  EXPECT_EQ(another.what, What::kRefuse);
  EXPECT_THAT(another.why, HasSubstr("the unfinished job a of /other.yaml"));
  EXPECT_THAT(same.why, HasSubstr("--retry goes on with the new ones"));
  const SameCommand retried =
      Decided({JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5)}, RerunMode::kNextAttempt);
  EXPECT_EQ(retried.what, What::kStop) << "only a job that has ended has a next attempt";
  v1::Job late = JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5);
  late.set_reason("TIME_LIMIT");
  late.mutable_spec()->set_seed(4);
  EXPECT_THAT(Decided({late}).why, HasSubstr("optimizer.sgd.lr: 0.5 -> 0.1; seed: 4 -> 0"));
  EXPECT_EQ(Decided({late}).what, What::kRefuse) << "the seed must not change";
}

TEST(SameCommand, TheNextAttemptGetsTheChangesOfTheFileThatItMayHave) {
  v1::Job late = JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5);
  late.set_reason("TIME_LIMIT");
  const SameCommand same = Decided({late});
  EXPECT_EQ(same.what, What::kNextAttempt);
  EXPECT_THAT(same.settings, ElementsAre("optimizer.sgd.lr=0.1"));
  EXPECT_THAT(same.why, HasSubstr(", with optimizer.sgd.lr: 0.5 -> 0.1"));
  v1::JobSpec file = Spec(0.5);
  file.mutable_export_()->set_path("/a b/\"w\".safetensors");
  EXPECT_THAT(Decide({late}, "/job.yaml", file, RerunMode::kGoOn).settings,
              testing::Contains("export.path=\"/a b/\\\"w\\\".safetensors\""));
}

TEST(SameCommand, WhatAJobHasFromACheckpointIsNoChange) {
  v1::Job job = JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5);
  job.mutable_spec()->set_seed(7);
  job.mutable_spec()->mutable_start()->set_checkpoint("/ckpt/other/step-4-g1");
  job.mutable_spec()->mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  job.mutable_spec()->add_stages()->mutable_fit()->set_steps(9);
  v1::JobSpec file = Spec(0.5);
  file.mutable_start()->set_checkpoint("other@4");
  file.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  file.add_stages()->mutable_fit()->set_steps(9);
  EXPECT_EQ(Decide({job}, "/job.yaml", file, RerunMode::kGoOn).what, What::kFollow);
  file.set_seed(8);
  EXPECT_THAT(Decide({job}, "/job.yaml", file, RerunMode::kGoOn).why, HasSubstr("seed: 7 -> 8"));
}

TEST(SameCommand, WhatARetryHasChangedIsNoChangeOfTheFile) {
  v1::Job job = JobOf("a", v1::Job::RUNNING, "/job.yaml", 0.5);
  job.add_setting_changes()->set_path("optimizer.sgd.lr");
  EXPECT_EQ(Decided({job}).what, What::kFollow);
  job.mutable_spec()->set_seed(3);
  EXPECT_THAT(Decided({job}).why, HasSubstr("with other settings: seed: 3 -> 0."));
}

TEST(SameCommand, TheNextAttemptMayGetTheValuesOfSet) {
  const v1::Job job = JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5);
  const std::vector<std::string> settings = {"optimizer.sgd.lr=0.1"};
  EXPECT_THAT(Decide({job}, "/job.yaml", Spec(), RerunMode::kNextAttempt, settings).settings,
              ElementsAre("optimizer.sgd.lr=0.1"));
  // A value of an earlier retry may be set again.
  v1::Job again = job;
  again.add_setting_changes()->set_path("optimizer.sgd.lr");
  EXPECT_THAT(Decide({again}, "/job.yaml", Spec(), RerunMode::kNextAttempt).settings,
              testing::IsEmpty());
  EXPECT_THAT(Decide({again}, "/job.yaml", Spec(), RerunMode::kNextAttempt, settings).settings,
              ElementsAre("optimizer.sgd.lr=0.1"));
}

TEST(SameCommand, OneThatHasEndedIsFollowedByAnotherUnlessItFailed) {
  EXPECT_EQ(Decided({}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::SUCCEEDED)}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::CANCELLED)}).what, What::kSubmit);
  EXPECT_THAT(Decided({JobOf("a", v1::Job::CANCELLED)}).why,
              HasSubstr("job a was stopped at step"));
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED, "/other.yaml")}).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, RerunMode::kGoOn, "").what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("b", v1::Job::SUCCEEDED), JobOf("a", v1::Job::FAILED)}).what,
            What::kSubmit)
      << "the newest counts";
  const SameCommand failed = Decided({JobOf("a", v1::Job::FAILED, "/job.yaml", 0.5)});
  EXPECT_EQ(failed.what, What::kFailed);
  EXPECT_THAT(failed.why, HasSubstr("changed since: optimizer.sgd.lr: 0.5 -> 0.1"));
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, RerunMode::kAnotherJob).what, What::kSubmit);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::FAILED)}, RerunMode::kNextAttempt).what,
            What::kNextAttempt);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::CANCELLED)}, RerunMode::kNextAttempt).what,
            What::kNextAttempt);
  EXPECT_EQ(Decided({JobOf("a", v1::Job::SUCCEEDED)}, RerunMode::kNextAttempt).what, What::kRefuse);
  EXPECT_EQ(Decided({}, RerunMode::kNextAttempt).what, What::kRefuse);
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
