#include "common/jobspec/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

v1::JobSpec Mlp(int hidden, uint32_t width) {
  v1::JobSpec spec = Parse(R"(
    name: "0" world_size: 1
    model { mlp { inputs: 4 classes: 3 } }
    data { validate { safetensors { path: "/rows" } } }
    batch { per_rank: 1 }
    stages { validate {} })");
  spec.mutable_model()->mutable_mlp()->mutable_hidden()->Resize(hidden, width);
  return spec;
}

class Sizes : public testing::TestWithParam<SpecCase> {};

TEST_P(Sizes, BeyondTheLimitOfItsFieldAJobHasThisOneProblem) {
  ExpectTheOneProblem(Parse(kGpt2Job), GetParam());
}

v1::TrainableSpec* Trainable(v1::JobSpec* spec) { return spec->mutable_trainable(); }

INSTANTIATE_TEST_SUITE_P(
    Job, Sizes,
    testing::Values(
        // A job with a problem for each of many numbers, because 0 is not allowed.
        SpecCase{"Numbers",
                 [](v1::JobSpec* spec) {
                   spec->mutable_model()->mutable_mlp()->mutable_hidden()->Resize(4097, 0);
                 },
                 "model.mlp.hidden", "found 4097 elements; allowed: at most 4096"},
        SpecCase{"Mappings",
                 [](v1::JobSpec* spec) {
                   for (int i = 0; i <= 4096; ++i) Trainable(spec)->add_rules();
                 },
                 "trainable.rules", "found 4097 elements; allowed: at most 4096"},
        SpecCase{"Texts",
                 [](v1::JobSpec* spec) {
                   for (int i = 0; i <= 65536; ++i) {
                     spec->mutable_data()->mutable_train()->add_per_rank("/f");
                   }
                 },
                 "data.train.per_rank", "found 65537 elements; allowed: at most 65536"},
        SpecCase{"Keys",
                 [](v1::JobSpec* spec) {
                   auto* options = spec->mutable_model()->mutable_plugin()->mutable_options();
                   for (int i = 0; i <= 4096; ++i) (*options)[absl::StrCat(i)] = "x";
                 },
                 "model.plugin.options", "found 4097 keys; allowed: at most 4096"},
        SpecCase{"Key",
                 [](v1::JobSpec* spec) {
                   auto* options = spec->mutable_model()->mutable_plugin()->mutable_options();
                   (*options)[std::string(4096, 'k')] = "x";
                 },
                 "model.plugin.options", "found a text of 4096 bytes; allowed: at most 4095"},
        SpecCase{"Path",
                 [](v1::JobSpec* spec) {
                   spec->mutable_checkpoint()->set_directory("/" + std::string(4095, 'd'));
                 },
                 "checkpoint.directory", "found a text of 4096 bytes; allowed: at most 4095"},
        SpecCase{"Pattern",
                 [](v1::JobSpec* spec) {
                   Trainable(spec)->add_rules()->set_freeze(std::string(501, '*'));
                 },
                 "trainable.rules[0].freeze", "found a text of 501 bytes; allowed: at most 500"},
        SpecCase{"Job",
                 [](v1::JobSpec* spec) {
                   auto* prompts = spec->add_stages()->mutable_predict()->mutable_generate();
                   prompts->add_prompts()->mutable_tokens()->Resize(1 << 20, 0);
                 },
                 "", "allowed: at most 1048576; long lists, such as prompts, can be given as"}),
    [](const auto& info) { return info.param.name; });

TEST(SizesOf, AJobWithTheLargestListsIsAccepted) {
  EXPECT_THAT(ValidateSpec(Mlp(4096, 1)).problems(), IsEmpty());
  v1::JobSpec spec = Mlp(1, 1);
  auto* options = spec.mutable_model()->mutable_plugin()->mutable_options();
  spec.mutable_model()->mutable_plugin()->set_path("/" + std::string(4094, 'p'));
  spec.mutable_model()->mutable_plugin()->set_name("p");
  (*options)[std::string(4095, 'k')] = std::string(4095, 'v');
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

TEST(SizesOf, OfManyProblemsTheFirstHundredAreReportedAndTheOthersCounted) {
  const v1::SpecProblems problems = ValidateSpec(Mlp(4096, 0));
  ASSERT_EQ(problems.problems_size(), 101);
  EXPECT_EQ(problems.problems(0).path(), "model.mlp.hidden[0]");
  EXPECT_EQ(problems.problems(99).path(), "model.mlp.hidden[99]");
  EXPECT_EQ(problems.problems(100).path(), "");
  EXPECT_EQ(problems.problems(100).message(), "and 3996 more problems");
}

TEST(SizesOf, AListInPlaceOfItsMessageIsLimitedByTheJob) {
  const auto* prompts = v1::PromptSpec::descriptor()->FindFieldByName("tokens");
  EXPECT_FALSE(MostElements(*prompts).has_value());
}

}  // namespace
}  // namespace muster::jobspec
