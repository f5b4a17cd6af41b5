#include "client/cli/init/fine_tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/jobfile/jobfile.h"
#include "common/jobspec/jobspec.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FineTuneTest, PositionsAreThoseOfTheConfig) {
  EXPECT_EQ(PositionsOf(R"({"max_position_embeddings": 4096})").value(), 4096);
  EXPECT_EQ(PositionsOf(R"({"n_positions": 1024})").value(), 1024);
  for (const char* bad :
       {"{}", "[]", "no", R"({"n_positions": "many"})", R"({"n_positions": 0})"}) {
    EXPECT_FALSE(PositionsOf(bad).ok()) << bad;
  }
}

TEST(FineTuneTest, NamesAreAllowedForJobs) {
  EXPECT_EQ(JobName("/m/Qwen3-0.6B/", "data/My chats.jsonl"), "qwen3-0-my-chats");
  EXPECT_EQ(JobName("..", "."), "fine-tune");
}

FineTune Facts() {
  return {.name = "qwen3-chats",
          .model = "/a \"model\"",
          .data = "chats.jsonl",
          .train = "train.safetensors",
          .validate = "validate.safetensors",
          .context = 512,
          .tokens = 1'000'000};
}

TEST(FineTuneTest, TheJobIsValid) {
  for (const int64_t ranks : {1, 4}) {
    for (const bool cuda : {false, true}) {
      FineTune facts = Facts();
      facts.ranks = ranks;
      facts.cuda = cuda;
      const auto file = jobfile::ParseJobFile(FineTuneJob(facts), "job.yaml", "/base");
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ(file->spec.model().hf(), "/a \"model\"");
      EXPECT_EQ(file->spec.data().train().documents().path(0), "/base/train.safetensors");
      EXPECT_TRUE(file->spec.stages(1).fit().sample().has_document());
      const auto problems = jobspec::ValidateSpec(jobspec::ResolveDefaults(file->spec));
      EXPECT_EQ(problems.problems_size(), 0) << jobspec::FormatProblems(problems);
    }
  }
}

TEST(FineTuneTest, AFaultCostsAtMostATenthOfTheTraining) {
  FineTune facts = Facts();
  facts.tokens = 512 * 100;  // 100 samples, 5 in a step: 60 steps
  EXPECT_THAT(FineTuneJob(facts), HasSubstr("every_steps: 6}"));
  facts.tokens = 1;
  EXPECT_THAT(FineTuneJob(facts), HasSubstr("every_steps: 1}"));
  facts.tokens = 1'000'000'000;
  EXPECT_THAT(FineTuneJob(facts), HasSubstr("every_steps: 100}"));
}

TEST(FineTuneTest, AStepHasFewerSamplesIfThereAreFewDocuments) {
  EXPECT_THAT(FineTuneJob(Facts()), HasSubstr("accumulate: 8,"));
  FineTune few = Facts();
  few.tokens = 512 * 60;
  EXPECT_THAT(FineTuneJob(few), HasSubstr("accumulate: 3,"));
  few.tokens = 1;
  EXPECT_THAT(FineTuneJob(few), HasSubstr("accumulate: 1,"));
  EXPECT_THAT(FineTuneJob(few), Not(HasSubstr("cuda")));
}

}  // namespace
}  // namespace muster::cli
