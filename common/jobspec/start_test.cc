#include <gtest/gtest.h>

#include <string>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

TEST(Start, ATextWithASlashIsADirectory) {
  EXPECT_TRUE(IsDirectory("/ckpt/job/step-20-g1"));
  EXPECT_TRUE(IsDirectory("./step-20-g1"));
  EXPECT_FALSE(IsDirectory("job@20"));
}

TEST(Start, AnyOtherTextNamesAJobAndMaybeAStep) {
  const auto newest = ParseJobAndStep("gpt-3");
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->job, "gpt-3");
  EXPECT_FALSE(newest->step.has_value());
  const auto step = ParseJobAndStep("gpt-3@20");
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->job, "gpt-3");
  EXPECT_EQ(step->step, 20u);
  for (const std::string wrong : {"", "@20", "gpt@", "gpt@x", "gpt@-1", "GPT", "a b", "a@1@2"}) {
    EXPECT_FALSE(ParseJobAndStep(wrong).has_value()) << wrong;
  }
}

TEST(Start, WhatTheCheckpointGivesIsNotGivenASecondTime) {
  const SpecCase cases[] = {
      {"Weights",
       [](auto* s) {
         s->mutable_start()->set_checkpoint("/c");
         s->mutable_model()->set_weights("/w");
       },
       "model.weights", "allowed: one of them"},
      {"PartOfWeights",
       [](auto* s) {
         s->mutable_start()->set_checkpoint("/c");
         s->mutable_model()->mutable_weights_from()->set_file("/w");
       },
       "model.weights", "allowed: one of them"},
      {"State",
       [](auto* s) {
         s->mutable_start()->set_checkpoint("/c");
         s->mutable_start()->set_what(v1::StartSpec::EVERYTHING);
         s->mutable_optimizer()->set_state("/s");
       },
       "optimizer.state", "allowed: one of them"},
      {"Relative", [](auto* s) { s->mutable_start()->set_checkpoint("c/d"); }, "start.checkpoint",
       "found 'c/d'"},
      {"NoJob", [](auto* s) { s->mutable_start()->set_checkpoint("a@b"); }, "start.checkpoint",
       "JOB@STEP"},
      {"Nothing", [](auto* s) { s->mutable_start(); }, "start.checkpoint", "is"},
  };
  for (const SpecCase& one : cases) {
    SCOPED_TRACE(one.name);
    ExpectTheOneProblem(Parse(kGpt2Job), one);
  }
}

}  // namespace
}  // namespace muster::jobspec
