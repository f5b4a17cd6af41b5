#include "common/jobspec/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/utf8/utf8.h"

namespace muster::jobspec {
namespace {

v1::JobSpec Job() { return ResolveDefaults(Parse(kGpt2Job)); }

std::vector<std::string> Refused(const v1::JobSpec& after) {
  std::vector<std::string> paths;
  const v1::SpecProblems problems = FixedSettings(Job(), after);
  for (const auto& problem : problems.problems()) {
    paths.push_back(problem.path());
  }
  return paths;
}

TEST(Changes, NamesEachValueThatDiffersWithBothValues) {
  v1::JobSpec after = Job();
  EXPECT_TRUE(Changes(Job(), after).empty());
  after.mutable_optimizer()->mutable_adamw()->set_lr(1e-4);
  after.set_clip_grad_norm(1);
  after.set_on_nan(v1::JobSpec::SKIP_STEP);
  const std::vector<Change> changes = Changes(Job(), after);
  ASSERT_EQ(changes.size(), 3);
  EXPECT_EQ(changes[0], (Change{"clip_grad_norm", "", "1"}));
  EXPECT_EQ(changes[1], (Change{"on_nan", "fail", "skip_step"}));
  EXPECT_EQ(changes[2].path, "optimizer.adamw.lr");
  EXPECT_EQ(changes[2].new_value, "0.0001");
  EXPECT_TRUE(Refused(after).empty());
}

TEST(Changes, AnotherAlternativeIsOneEvenIfItIsEmpty) {
  v1::JobSpec after = Job();
  after.mutable_schedule()->clear_kind();
  after.mutable_schedule()->mutable_linear()->set_total_steps(7);
  EXPECT_FALSE(Changes(Job(), after).empty());
  EXPECT_TRUE(Refused(after).empty());
}

TEST(FixedSettings, AreAllRefusedAtOnceByTheirPaths) {
  v1::JobSpec after = Job();
  after.set_name("other");
  after.mutable_model()->mutable_gpt2()->set_layers(77);
  after.set_world_size(after.world_size() + 1);
  after.set_seed(99);
  after.mutable_checkpoint()->set_directory("/elsewhere");
  after.mutable_optimizer()->mutable_adamw()->set_lr(0.5);
  EXPECT_THAT(Refused(after),
              testing::UnorderedElementsAre("checkpoint.directory", "model.gpt2.layers", "name",
                                            "seed", "world_size"));
}

TEST(FixedSettings, ValuesWithinAStageMayChangeAndTheStagesThemselvesMayNot) {
  v1::JobSpec after = Job();
  after.mutable_stages(0)->mutable_fit()->set_steps(9);
  EXPECT_TRUE(Refused(after).empty());
  after.add_stages()->mutable_validate();
  EXPECT_THAT(Refused(after), testing::Not(testing::IsEmpty()));
}

TEST(FixedSettings, ALongValueIsCutBetweenCharacters) {
  v1::JobSpec after = Job();
  std::string name = "/";
  for (int i = 0; i < 39; ++i) name += "\xc3\xbc";  // 2 bytes each
  after.mutable_checkpoint()->set_directory(name + "x");
  const v1::SpecProblems problems = FixedSettings(Job(), after);
  ASSERT_EQ(problems.problems_size(), 1);
  const std::string& message = problems.problems(0).message();
  EXPECT_EQ(ValidUtf8Prefix(message), message.size()) << message;
}

TEST(FixedSettings, AJobThatWroteNoCheckpointsMayBegin) {
  v1::JobSpec before = Job();
  before.clear_checkpoint();
  EXPECT_EQ(FixedSettings(before, Job()).problems_size(), 0);
  EXPECT_EQ(FixedSettings(Job(), before).problems_size(), 1);
}

TEST(FixedSettings, TheKindOfTheOptimizerAndWhetherItHasMomentumStay) {
  v1::JobSpec after = Job();
  after.mutable_optimizer()->mutable_sgd()->set_lr(0.5);
  EXPECT_EQ(Refused(after).size(), 1) << "one reason for all values";
  v1::JobSpec plain = Job(), with_momentum = Job();
  plain.mutable_optimizer()->mutable_sgd()->set_momentum(0);
  with_momentum.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  EXPECT_EQ(FixedSettings(plain, with_momentum).problems_size(), 1);
  v1::JobSpec more = with_momentum;
  more.mutable_optimizer()->mutable_sgd()->set_momentum(0.95);
  EXPECT_EQ(FixedSettings(with_momentum, more).problems_size(), 0);
}

TEST(FixedSettings, Float16IsNeitherEnteredNorLeft) {
  v1::JobSpec after = Job();
  after.set_precision(v1::JobSpec::BFLOAT16);
  EXPECT_TRUE(Refused(after).empty());
  after.set_precision(v1::JobSpec::FLOAT16);
  EXPECT_THAT(Refused(after), testing::ElementsAre("precision"));
}

TEST(FixedSettings, OptionsOfAPluginAreOfTheModel) {
  v1::JobSpec before = Job();
  before.mutable_model()->mutable_plugin()->set_path("/a.so");
  v1::JobSpec after = before;
  (*after.mutable_model()->mutable_plugin()->mutable_options())["k"] = "v";
  const v1::SpecProblems problems = FixedSettings(before, after);
  ASSERT_EQ(problems.problems_size(), 1);
  EXPECT_EQ(problems.problems(0).path(), "model.plugin.options");
}

}  // namespace
}  // namespace muster::jobspec
