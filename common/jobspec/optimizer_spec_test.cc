// Defaults and rules of optimizer, schedule, precision, loss_scale and on_nan.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A valid job of 100 steps, with `settings`.
v1::JobSpec Job(const std::string& settings) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "rows" world_size: 2
    model { mlp { inputs: 4 classes: 3 } }
    data { train { safetensors { path: "/d/train.safetensors" } } }
    optimizer { sgd { lr: 0.1 } }
    batch { per_rank: 8 }
    stages { fit { steps: 60 } }
    stages { fit { steps: 40 } })",
                                                            &spec));
  v1::JobSpec more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  if (more.has_optimizer()) spec.clear_optimizer();
  spec.MergeFrom(more);
  return spec;
}

void ExpectResolved(const std::string& settings, const std::string& expected) {
  const v1::JobSpec found = ResolveDefaults(Job(settings));
  const v1::JobSpec wanted = ResolveDefaults(Job(expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(found, wanted))
      << found.DebugString() << "\nexpected\n"
      << wanted.DebugString();
  // `expected` is complete: ResolveDefaults does not change it.
  const v1::JobSpec plain = Job(expected);
  using google::protobuf::util::MessageDifferencer;
  EXPECT_TRUE(MessageDifferencer::Equals(found.optimizer(), plain.optimizer())) << settings;
  EXPECT_TRUE(MessageDifferencer::Equals(found.schedule(), plain.schedule())) << settings;
  EXPECT_TRUE(MessageDifferencer::Equals(found.loss_scale(), plain.loss_scale())) << settings;
  EXPECT_EQ(found.on_nan(), plain.on_nan());
  EXPECT_TRUE(MessageDifferencer::Equals(found, ResolveDefaults(found)));
  EXPECT_THAT(ValidateSpec(found).problems(), IsEmpty());
}

constexpr char kSgd[] =
    "optimizer { sgd { lr: 0.1 momentum: 0 weight_decay: 0 nesterov: false } } on_nan: FAIL ";

TEST(ResolveDefaults, FillsSchedules) {
  const std::string sgd = kSgd;
  ExpectResolved("", sgd + "schedule { constant { warmup_steps: 0 } }");
  ExpectResolved("schedule { constant { warmup_steps: 3 } }",
                 sgd + "schedule { constant { warmup_steps: 3 } }");
  ExpectResolved("schedule { warmup_cosine {} }",
                 sgd +
                     "schedule { warmup_cosine { warmup_steps: 0 total_steps: 100 "
                     "min_ratio: 0 } }");
  ExpectResolved("schedule { linear { warmup_steps: 3 } }",
                 sgd + "schedule { linear { warmup_steps: 3 total_steps: 100 min_ratio: 0 } }");
  ExpectResolved("schedule { linear { total_steps: 7 min_ratio: 0.5 } }",
                 sgd + "schedule { linear { warmup_steps: 0 total_steps: 7 min_ratio: 0.5 } }");
  ExpectResolved("schedule { step { step_size: 5 } }",
                 sgd + "schedule { step { warmup_steps: 0 step_size: 5 gamma: 0.1 } }");
  ExpectResolved("schedule { one_cycle {} }",
                 sgd +
                     "schedule { one_cycle { total_steps: 100 pct_start: 0.3 div_factor: 25 "
                     "final_div_factor: 1e4 anneal: COS three_phase: false } }");
  ExpectResolved(
      "schedule { one_cycle { total_steps: 9 pct_start: 0.5 div_factor: 2 "
      "final_div_factor: 3 anneal: LINEAR three_phase: true } }",
      sgd +
          "schedule { one_cycle { total_steps: 9 pct_start: 0.5 div_factor: 2 "
          "final_div_factor: 3 anneal: LINEAR three_phase: true } }");
}

TEST(ResolveDefaults, FillsAdam) {
  ExpectResolved("optimizer { adam { lr: 0.1 } }",
                 "optimizer { adam { lr: 0.1 betas: 0.9 betas: 0.999 eps: 1e-8 weight_decay: 0 } } "
                 "on_nan: FAIL schedule { constant { warmup_steps: 0 } }");
}

TEST(ResolveDefaults, FillsLion) {
  ExpectResolved(
      "optimizer { lion { lr: 0.1 } }",
      "optimizer { lion { lr: 0.1 betas: 0.9 betas: 0.99 weight_decay: 0 } } on_nan: FAIL "
      "schedule { constant { warmup_steps: 0 } }");
}

TEST(ResolveDefaults, FillsAdadelta) {
  ExpectResolved("optimizer { adadelta {} }",
                 "optimizer { adadelta { lr: 1 rho: 0.9 eps: 1e-6 weight_decay: 0 } } "
                 "on_nan: FAIL schedule { constant { warmup_steps: 0 } }");
}

TEST(ResolveDefaults, FillsTheLossScaleOfFloat16Only) {
  const std::string rest = std::string(kSgd) + "schedule { constant { warmup_steps: 0 } } ";
  ExpectResolved("precision: BFLOAT16", rest + "precision: BFLOAT16");
  ExpectResolved("precision: FLOAT16",
                 rest +
                     "precision: FLOAT16 loss_scale { initial: 65536 growth_factor: 2 "
                     "backoff_factor: 0.5 growth_interval: 2000 }");
  ExpectResolved("precision: FLOAT16 loss_scale { growth_interval: 10 }",
                 rest +
                     "precision: FLOAT16 loss_scale { initial: 65536 growth_factor: 2 "
                     "backoff_factor: 0.5 growth_interval: 10 }");
}

TEST(ResolveDefaults, LeavesOpenWhatAGroupDoesNotSet) {
  const std::string groups =
      " groups { match: \"*\" lr_scale: 0.5 } groups { match: \"b\" weight_decay: 0 } } ";
  ExpectResolved("optimizer { sgd { lr: 0.1 }" + groups,
                 "optimizer { sgd { lr: 0.1 momentum: 0 weight_decay: 0 nesterov: false }" +
                     groups + "on_nan: FAIL schedule { constant { warmup_steps: 0 } }");
}

TEST(ResolveDefaults, FillsTheDefaultsOfAnOptimizerOfAGroup) {
  const std::string own =
      "optimizer { sgd { lr: 0.1 momentum: 0 weight_decay: 0 nesterov: false } ";
  ExpectResolved(own + "groups { match: \"*\" optimizer { lion { lr: 1 } } } }",
                 own +
                     "groups { match: \"*\" optimizer { lion { lr: 1 betas: [ 0.9, 0.99 ] "
                     "weight_decay: 0 } } } } on_nan: FAIL "
                     "schedule { constant { warmup_steps: 0 } }");
}

TEST(ValidateSpec, TakesWhatIsJustPossible) {
  for (const char* settings : {
           "schedule { constant { warmup_steps: 100 } }",
           "schedule { linear { warmup_steps: 100 } }",
           "schedule { linear { warmup_steps: 300 total_steps: 300 min_ratio: 1 } }",
           "schedule { step { warmup_steps: 100 step_size: 1 gamma: 2 } }",
           "schedule { one_cycle { three_phase: true pct_start: 0.5 } }",
           "schedule { one_cycle { pct_start: 0.99 div_factor: 1 final_div_factor: 1 } }",
           "schedule { one_cycle { div_factor: 4 final_div_factor: 0.25 } }",
           "precision: FLOAT16 loss_scale { initial: 1e-3 growth_interval: 16777216 }",
           "on_nan: SKIP_STEP",
           "optimizer { sgd { lr: 1 momentum: 0.9 nesterov: true } }",
           "optimizer { adamw { lr: 1 } groups { match: \"*\" weight_decay: 0 lr_scale: 0 } }",
           "optimizer { adamw { lr: 1 } groups { match: \"*\" lr: 2 betas: [ 0, 0.5 ] eps: 1 } }",
           "optimizer { sgd { lr: 1 } groups { match: \"*\" momentum: 0.5 } }",
           "optimizer { sgd { lr: 1 } groups { match: \"a\" lr_scale: 2 optimizer { adadelta {} } }"
           " groups { match: \"b\" eps: 1 } groups { match: \"c\" momentum: 0.5 } }",
       }) {
    EXPECT_THAT(ValidateSpec(Job(settings)).problems(), IsEmpty()) << settings;
    EXPECT_THAT(ValidateSpec(ResolveDefaults(Job(settings))).problems(), IsEmpty()) << settings;
  }
}

struct Case {
  const char* settings;
  const char* path;
  const char* message;  // a part of the message
};

TEST(ValidateSpec, NamesTheOneThingThatIsImpossible) {
  const Case cases[] = {
      {"schedule { constant { warmup_steps: 101 } }", "schedule.constant.warmup_steps",
       "found 101; allowed: at most the steps of all fit stages, 100"},
      {"schedule { step { warmup_steps: 101 step_size: 1 } }", "schedule.step.warmup_steps",
       "found 101"},
      {"schedule { step {} }", "schedule.step.step_size", "is missing or 0; allowed: 1 or more"},
      {"schedule { step { step_size: 1 gamma: 0 } }", "schedule.step.gamma",
       "found 0; allowed: a number above 0"},
      {"schedule { step { step_size: 1 gamma: -0.5 } }", "schedule.step.gamma", "found -0.5"},
      {"schedule { step { step_size: 1 gamma: nan } }", "schedule.step.gamma", "found nan"},
      {"schedule { linear { warmup_steps: 101 } }", "schedule.linear.warmup_steps",
       "found 101; allowed: at most"},
      {"schedule { linear { warmup_steps: 8 total_steps: 7 } }", "schedule.linear.warmup_steps",
       "found 8; allowed: at most total_steps, 7"},
      {"schedule { linear { total_steps: 0 } }", "schedule.linear.total_steps",
       "found 0; allowed: 1 or more"},
      {"schedule { linear { min_ratio: -0.1 } }", "schedule.linear.min_ratio",
       "found -0.1; allowed: 0 to 1"},
      {"schedule { linear { min_ratio: 1.1 } }", "schedule.linear.min_ratio", "found 1.1"},
      {"schedule { warmup_cosine { total_steps: 0 } }", "schedule.warmup_cosine.total_steps",
       "found 0"},
      {"schedule { one_cycle { total_steps: 0 } }", "schedule.one_cycle.total_steps", "found 0"},
      {"schedule { one_cycle { pct_start: 0 } }", "schedule.one_cycle.pct_start",
       "found 0; allowed: above 0 and below 1"},
      {"schedule { one_cycle { pct_start: 1 } }", "schedule.one_cycle.pct_start", "found 1"},
      {"schedule { one_cycle { pct_start: 0.6 three_phase: true } }",
       "schedule.one_cycle.pct_start", "found 0.6; allowed: at most 0.5 with three_phase"},
      {"schedule { one_cycle { div_factor: 0.9 } }", "schedule.one_cycle.div_factor",
       "found 0.9; allowed: 1 or more"},
      {"schedule { one_cycle { final_div_factor: 0.01 } }", "schedule.one_cycle.final_div_factor",
       "found 0.01; allowed: 1 / div_factor or more"},
      {"schedule { one_cycle { final_div_factor: -1 } }", "schedule.one_cycle.final_div_factor",
       "found -1"},
      {"precision: FLOAT16 strategy { fsdp { param_dtype: BFLOAT16 } }",
       "strategy.fsdp.param_dtype", "found bfloat16 with precision float16"},
      {"loss_scale {}", "loss_scale", "only precision float16 uses it"},
      {"precision: BFLOAT16 loss_scale { initial: 1 }", "loss_scale",
       "only precision float16 uses it"},
      {"precision: FLOAT16 loss_scale { initial: 0 }", "loss_scale.initial",
       "found 0; allowed: a number above 0"},
      {"precision: FLOAT16 loss_scale { initial: 1e39 }", "loss_scale.initial",
       "at most 3.40282e+38"},
      {"precision: FLOAT16 loss_scale { growth_factor: 1 }", "loss_scale.growth_factor",
       "found 1; allowed: a number above 1"},
      {"precision: FLOAT16 loss_scale { backoff_factor: 1 }", "loss_scale.backoff_factor",
       "above 0 and below 1"},
      {"precision: FLOAT16 loss_scale { backoff_factor: 0 }", "loss_scale.backoff_factor",
       "above 0 and below 1"},
      {"precision: FLOAT16 loss_scale { growth_interval: 0 }", "loss_scale.growth_interval",
       "found 0; allowed: 1 to 16777216"},
      {"precision: FLOAT16 loss_scale { growth_interval: 16777217 }", "loss_scale.growth_interval",
       "found 16777217"},
      {"optimizer { sgd { lr: 1 nesterov: true } }", "optimizer.sgd.nesterov", "momentum is 0"},
      {"optimizer { adadelta { rho: 1 } }", "optimizer.adadelta.rho",
       "found 1; allowed: from 0 to below 1"},
      {"optimizer { lion {} }", "optimizer.lion.lr", "allowed: a number above 0"},
      {"optimizer { lion { lr: 1 betas: 1 betas: 0.5 } }", "optimizer.lion.betas[0]", "found 1"},
      {"optimizer { sgd { lr: 1 } groups { match: \"a\" } }", "optimizer.groups[0]",
       "sets nothing; allowed: one or more of weight_decay, lr_scale, lr, betas, eps, momentum, or "
       "optimizer"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" lr: 0 } }", "optimizer.groups[0].lr",
       "found 0; allowed: a number above 0"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" betas: 0.5 } }",
       "optimizer.groups[0].betas", "found a list of 1; allowed: 2 numbers"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" momentum: 0.5 } }",
       "optimizer.groups[0].momentum",
       "no optimizer that is chosen before this group has it; allowed: settings of the job's "
       "optimizer, or of an optimizer of an earlier group"},
      {"optimizer { lion { lr: 1 } groups { match: \"a\" eps: 0.5 } "
       "groups { match: \"b\" optimizer { adam { lr: 1 } } } }",
       "optimizer.groups[0].eps", "chosen before this group"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" weight_decay: 0.5 "
       "optimizer { sgd { lr: 1 } } } }",
       "optimizer.groups[0].weight_decay",
       "is set beside optimizer; allowed: as a setting of that optimizer, or in a later group"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" optimizer {} } }",
       "optimizer.groups[0].optimizer", "nothing is chosen; allowed is one of: adamw, sgd"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" optimizer { sgd {} } } }",
       "optimizer.groups[0].optimizer.sgd.lr", "is missing or 0"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" "
       "optimizer { sgd { lr: 1 nesterov: true } } } }",
       "optimizer.groups[0].optimizer.sgd.nesterov", "momentum is 0"},
      {"optimizer { sgd { lr: 1 } groups { match: \"a\" lr_scale: 1 } groups { lr_scale: 1 } }",
       "optimizer.groups[1].match", "is missing"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" weight_decay: -1 } }",
       "optimizer.groups[0].weight_decay", "found -1; allowed: 0 or more"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" lr_scale: -1 } }",
       "optimizer.groups[0].lr_scale", "found -1; allowed: 0 or more"},
      {"optimizer { adamw { lr: 1 } groups { match: \"a\" lr_scale: inf } }",
       "optimizer.groups[0].lr_scale", "finite"},
  };
  for (const Case& one : cases) {
    for (const v1::JobSpec& spec : {Job(one.settings), ResolveDefaults(Job(one.settings))}) {
      const v1::SpecProblems problems = ValidateSpec(spec);
      ASSERT_EQ(problems.problems_size(), 1) << one.settings << "\n" << FormatProblems(problems);
      EXPECT_EQ(problems.problems(0).path(), one.path);
      EXPECT_THAT(problems.problems(0).message(), HasSubstr(one.message));
    }
  }
}

TEST(ValidateSpec, RefusesUnknownAlternatives) {
  v1::JobSpec spec = Job("");
  spec.set_on_nan(static_cast<v1::JobSpec::OnNan>(9));
  EXPECT_EQ(FormatProblems(ValidateSpec(spec)),
            "on_nan: found the unknown number 9; allowed: fail, skip_step\n");
}

}  // namespace
}  // namespace muster::jobspec
