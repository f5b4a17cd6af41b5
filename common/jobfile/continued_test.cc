#include "common/jobfile/continued.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/files/temp_dir.h"
#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/training_settings.h"
#include "common/manifest/manifest.h"

namespace muster::jobfile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ContinuedTest : public ::testing::Test {
 protected:
  // Writes a checkpoint of step 40 of kGpt2Job with seed 7.
  ContinuedTest() {
    std::filesystem::create_directory(directory_);
    v1::JobSpec other = jobspec::Parse(jobspec::kGpt2Job);
    other.set_seed(7);
    manifest_.job = "other";
    manifest_.step = 40;
    manifest_.generation = 1;
    manifest_.settings = jobspec::TrainingSettingsJson(jobspec::ResolveDefaults(other));
  }

  // A job file with a start from this directory.
  v1::JobSpec File() const {
    v1::JobSpec file = jobspec::Parse(jobspec::kGpt2Job);
    file.mutable_start()->set_checkpoint(directory_);
    file.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
    return file;
  }

  Continued ContinueWith(const v1::JobSpec& file) {
    EXPECT_TRUE(manifest::Write(manifest_, directory_).ok());
    return ContinueHere(file);
  }

  files::TempDir folder_;
  const std::string directory_ = folder_.path() + "/step-40-g1";
  manifest::Manifest manifest_;
};

TEST_F(ContinuedTest, TakesWhatTheFileLeavesOut) {
  const Continued found = ContinueWith(File());
  EXPECT_THAT(found.problems.problems(), IsEmpty());
  EXPECT_EQ(found.spec.seed(), 7u);
  EXPECT_THAT(found.taken, AllOf(HasSubstr(directory_), HasSubstr("gives: seed 7")));
  EXPECT_EQ(found.differing, "");
}

TEST_F(ContinuedTest, ALiveRateCountsWhereTheFileHasNone) {
  manifest_.steering.learning_rate = 0.5;
  v1::JobSpec file = File();
  const Continued own = ContinueWith(file);
  EXPECT_EQ(own.spec.optimizer().adamw().lr(), 0.001);
  EXPECT_THAT(own.differing,
              HasSubstr("optimizer.adamw.lr: 0.001 in the job file, 0.5 in the checkpoint"));
  file.clear_optimizer();
  EXPECT_EQ(ContinueWith(file).spec.optimizer().adamw().lr(), 0.5);
}

TEST_F(ContinuedTest, RulesThatDifferFromThoseInForceAreNamed) {
  manifest_.steering.trainability_version = 2;
  manifest_.steering.rules = {{.freeze = true, .pattern = "a*"}};
  v1::JobSpec file = File();
  EXPECT_EQ(ContinueWith(file).differing, "");
  file.mutable_trainable()->add_rules()->set_freeze("b*");
  EXPECT_THAT(ContinueWith(file).differing, HasSubstr("\"b*\" in the job file, \"a*\" in the"));
}

TEST_F(ContinuedTest, NothingLeftToTrainIsRefused) {
  v1::JobSpec file = File();
  const auto problem = [&](uint32_t steps, uint32_t limit) -> std::string {
    file.mutable_stages(0)->mutable_fit()->set_steps(steps);
    file.mutable_stages(0)->mutable_fit()->set_limit_steps(limit);
    const Continued found = ContinueWith(file);
    if (found.problems.problems().empty()) return "";
    EXPECT_THAT(found.problems.problems(), SizeIs(1));
    EXPECT_EQ(found.problems.problems(0).path(), "start.what");
    return found.problems.problems(0).message();
  };
  EXPECT_THAT(problem(40, 0), AllOf(HasSubstr("is of step 40"), HasSubstr("have 40 steps")));
  EXPECT_THAT(problem(20, 0), HasSubstr("nothing would be trained"));
  EXPECT_THAT(problem(100, 40), HasSubstr("nothing would be trained"));
  EXPECT_EQ(problem(41, 0), "");
  file.mutable_start()->set_what(v1::StartSpec::WEIGHTS);
  EXPECT_EQ(problem(20, 0), "");
}

TEST_F(ContinuedTest, AProfileOfStepsThatAreDoneIsRefused) {
  v1::JobSpec file = File();
  file.mutable_profile()->set_directory("/d/traces");
  file.mutable_profile()->add_steps(40);
  const Continued found = ContinueWith(file);
  ASSERT_THAT(found.problems.problems(), SizeIs(1));
  EXPECT_EQ(found.problems.problems(0).path(), "profile.steps");
  file.mutable_profile()->add_steps(41);
  EXPECT_THAT(ContinueWith(file).problems.problems(), IsEmpty());
}

TEST_F(ContinuedTest, AJobWithoutFitMayBeginAtTheEnd) {
  v1::JobSpec file = File();
  file.mutable_stages()->DeleteSubrange(0, 1);
  EXPECT_THAT(ContinueWith(file).problems.problems(), IsEmpty());
}

TEST_F(ContinuedTest, AnOlderCheckpointGivesOnlyItsStep) {
  manifest_.settings = "";
  v1::JobSpec file = File();
  const Continued found = ContinueWith(file);
  EXPECT_THAT(found.problems.problems(), IsEmpty());
  EXPECT_EQ(found.spec.seed(), 0u);
  file.clear_optimizer();
  const Continued without = ContinueWith(file);
  ASSERT_THAT(without.problems.problems(), SizeIs(1));
  EXPECT_EQ(without.problems.problems(0).path(), "optimizer");
}

TEST_F(ContinuedTest, ALiveRateOfAnOlderCheckpointIsNamed) {
  manifest_.settings = "";
  manifest_.steering.learning_rate = 0.5;
  v1::JobSpec file = File();
  const Continued found = ContinueWith(file);
  EXPECT_THAT(found.problems.problems(), IsEmpty());
  EXPECT_EQ(found.spec.optimizer().adamw().lr(), 0.001);
  EXPECT_THAT(found.differing,
              HasSubstr("optimizer.adamw.lr: 0.001 in the job file, 0.5 in the checkpoint"));
  file.clear_optimizer();
  const Continued without = ContinueWith(file);
  ASSERT_THAT(without.problems.problems(), SizeIs(1));
  EXPECT_EQ(without.problems.problems(0).path(), "optimizer");
}

TEST_F(ContinuedTest, AWrittenZeroCounts) {
  v1::JobSpec other = jobspec::Parse(jobspec::kGpt2Job);
  other.set_seed(7);
  other.mutable_schedule()->mutable_warmup_cosine()->set_warmup_steps(3);
  other.mutable_ema()->set_evaluate(true);
  manifest_.settings = jobspec::TrainingSettingsJson(jobspec::ResolveDefaults(other));
  v1::JobSpec file = File();
  file.set_seed(0);
  file.mutable_schedule()->mutable_warmup_cosine()->set_warmup_steps(0);
  file.mutable_ema()->set_evaluate(false);
  const Continued found = ContinueWith(file);
  EXPECT_EQ(found.spec.seed(), 0u);
  EXPECT_EQ(found.spec.schedule().warmup_cosine().warmup_steps(), 0u);
  EXPECT_FALSE(found.spec.ema().evaluate());
  EXPECT_THAT(found.differing, HasSubstr("seed: 0 in the job file, 7 in the checkpoint"));
}

TEST_F(ContinuedTest, WhatCannotBeReadIsNamed) {
  const Continued found = ContinueHere(File());
  ASSERT_THAT(found.problems.problems(), SizeIs(1));
  EXPECT_EQ(found.problems.problems(0).path(), "start.checkpoint");
  EXPECT_THAT(found.problems.problems(0).message(), HasSubstr(directory_));
  std::filesystem::create_directory(directory_ + "/MANIFEST.json");
  EXPECT_THAT(ContinueHere(File()).problems.problems(0).message(),
              HasSubstr("is not a regular file"));
}

TEST_F(ContinuedTest, WhatDoesNotFitTheFileIsNamedWithItsSource) {
  v1::JobSpec other = jobspec::Parse(jobspec::kGpt2Job);
  other.mutable_schedule()->mutable_warmup_cosine()->set_warmup_steps(90);
  manifest_.settings = jobspec::TrainingSettingsJson(jobspec::ResolveDefaults(other));
  v1::JobSpec file = File();
  file.clear_schedule();
  file.mutable_stages(0)->mutable_fit()->set_steps(80);
  const Continued found = ContinueWith(file);
  ASSERT_THAT(found.problems.problems(), SizeIs(1));
  EXPECT_THAT(found.problems.problems(0).message(),
              AllOf(HasSubstr("found 90"), HasSubstr(directory_)));
}

}  // namespace
}  // namespace muster::jobfile
