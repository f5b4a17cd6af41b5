#include "common/jobspec/jobspec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using ::testing::IsEmpty;

bool Equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

TEST(ResolveDefaults, FillsWhatTheProtoNames) {
  const v1::JobSpec spec = ResolveDefaults(Parse(kGpt2Job));
  EXPECT_TRUE(Equal(spec, Parse(R"(
    name: "tiny" world_size: 2 seed: 0 device: CPU precision: FLOAT32
    model { gpt2 { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64
                   inner: 256 dropout: 0 tied: true } }
    data {
      train { tokens { path: "/d/train.bin" dtype: UINT16 } }
      validate { tokens { path: "/d/val.bin" dtype: UINT16 } }
    }
    strategy { ddp { bucket_mb: 4 } }
    optimizer { adamw { lr: 0.001 betas: [0.9, 0.999] eps: 1e-8 weight_decay: 0.01 } }
    schedule { warmup_cosine { warmup_steps: 10 total_steps: 100 min_ratio: 0 } }
    batch { per_rank: 8 accumulate: 1 order: SHUFFLED last: DROP }
    stages { fit { steps: 100 validate_every: 10 } }
    stages { validate {} }
    checkpoint { directory: "/d/ckpt" every_steps: 20 keep: 3 background: true }
    export { path: "/d/out.safetensors" from: LAST }
    loss { cross_entropy { label_smoothing: 0 } }
    on_nan: FAIL evaluation { reshard: AUTO }
    restart { max_restarts: 3 } priority: 0 when_cut_off: STOP threads: 1)")))
      << spec.DebugString();
}

TEST(ResolveDefaults, KeepsWhatIsGivenAndASecondCallChangesNothing) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_model()->mutable_gpt2()->set_tied(false);
  spec.mutable_restart()->set_max_restarts(0);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(1);
  spec.clear_schedule();
  const v1::JobSpec once = ResolveDefaults(spec);
  EXPECT_FALSE(once.model().gpt2().tied());
  EXPECT_EQ(once.restart().max_restarts(), 0);
  EXPECT_TRUE(once.optimizer().sgd().has_momentum());
  EXPECT_TRUE(once.schedule().has_constant());
  EXPECT_TRUE(Equal(once, ResolveDefaults(once)));
}

TEST(ResolveDefaults, SumsAreInTheOrderOfTheRanksOnTheCpuAndFastOnGpus) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_collectives();
  EXPECT_EQ(ResolveDefaults(spec).collectives().order(), v1::CollectivesSpec::RANK);
  spec.clear_collectives();
  spec.set_device(v1::JobSpec::CUDA);
  EXPECT_EQ(ResolveDefaults(spec).collectives().order(), v1::CollectivesSpec::FAST);
  spec.mutable_collectives()->set_order(v1::CollectivesSpec::RANK);
  EXPECT_EQ(ResolveDefaults(spec).collectives().order(), v1::CollectivesSpec::RANK);
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

TEST(ResolveDefaults, BucketsAreLargerOnGpus) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.clear_strategy();
  EXPECT_EQ(ResolveDefaults(spec).strategy().ddp().bucket_mb(), 4);
  spec.set_device(v1::JobSpec::CUDA);
  EXPECT_EQ(ResolveDefaults(spec).strategy().ddp().bucket_mb(), 25);
  spec.mutable_strategy()->mutable_sharded_ddp();
  EXPECT_EQ(ResolveDefaults(spec).strategy().sharded_ddp().bucket_mb(), 25);
  spec.mutable_strategy()->mutable_sharded_ddp()->set_bucket_mb(1);
  EXPECT_EQ(ResolveDefaults(spec).strategy().sharded_ddp().bucket_mb(), 1);
}

TEST(ResolveDefaults, KeepsAValidSpecValid) {
  EXPECT_THAT(ValidateSpec(ResolveDefaults(Parse(kGpt2Job))).problems(), IsEmpty());
}

TEST(ResolveDefaults, TheLossIsCrossEntropyUnlessTheModelMayHaveItsOwn) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_loss()->mutable_mse();
  EXPECT_TRUE(ResolveDefaults(spec).loss().has_mse());
  spec.mutable_loss()->mutable_cross_entropy()->set_ignore_index(-100);
  EXPECT_TRUE(
      Equal(ResolveDefaults(spec).loss(),
            Parse("loss { cross_entropy { ignore_index: -100 label_smoothing: 0 } }").loss()));
  spec.clear_loss();
  spec.mutable_model()->mutable_plugin();
  EXPECT_FALSE(ResolveDefaults(spec).has_loss());
  spec.mutable_model()->set_exported("/folder");
  EXPECT_FALSE(ResolveDefaults(spec).has_loss());
}

TEST(ValidateSpec, TakesWhatMayRun) {
  EXPECT_THAT(ValidateSpec(Parse(kGpt2Job)).problems(), IsEmpty());
  EXPECT_THAT(ValidateSpec(Parse(R"(
    name: "0" world_size: 1
    model { mlp { inputs: 4 hidden: [8, 8] classes: 3 } }
    data { validate { safetensors { path: "/rows" } } }
    batch { per_rank: 1 }
    stages { validate {} })"))
                  .problems(),
              IsEmpty());
}

TEST(ValidateSpec, NamesEverythingThatAnEmptyJobLacks) {
  const v1::SpecProblems problems = ValidateSpec(v1::JobSpec());
  std::vector<std::string> paths;
  for (const auto& problem : problems.problems()) paths.push_back(problem.path());
  EXPECT_THAT(paths, testing::UnorderedElementsAre("name", "world_size", "model", "stages"));
}

using Case = SpecCase;

class ValidateSpecFinds : public testing::TestWithParam<Case> {};

TEST_P(ValidateSpecFinds, TheOneProblemAlsoWithDefaultsFilledIn) {
  ExpectTheOneProblem(Parse(kGpt2Job), GetParam());
}

v1::AdamwSpec* Adamw(v1::JobSpec* s) { return s->mutable_optimizer()->mutable_adamw(); }
v1::WarmupCosineSchedule* Cosine(v1::JobSpec* s) {
  return s->mutable_schedule()->mutable_warmup_cosine();
}

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateSpecFinds,
    testing::Values(
        Case{"FastSumsOnTheCpu",
             [](v1::JobSpec* s) { s->mutable_collectives()->set_order(v1::CollectivesSpec::FAST); },
             "collectives.order", "found fast; allowed: rank, because on the CPU"},
        Case{"NameMissing", [](auto* s) { s->clear_name(); }, "name", "is missing"},
        Case{"NameUpper", [](auto* s) { s->set_name("Tiny"); }, "name", "found 'Tiny'"},
        Case{"NameDash", [](auto* s) { s->set_name("-x"); }, "name", "found '-x'"},
        Case{"NameLong", [](auto* s) { s->set_name(std::string(41, 'a')); }, "name",
             "found 41 characters"},
        Case{"NoRanks", [](auto* s) { s->set_world_size(0); }, "world_size", "allowed: 1 to"},
        Case{"ManyRanks", [](auto* s) { s->set_world_size(70000); }, "world_size", "found 70000"},
        Case{"Device", [](auto* s) { s->set_device(static_cast<v1::JobSpec::Device>(77)); },
             "device", "allowed: cpu"},
        Case{"NoKindOfStrategy", [](auto* s) { s->mutable_strategy(); }, "strategy",
             "one of: ddp, sharded_ddp"},
        Case{"Bucket", [](auto* s) { s->mutable_strategy()->mutable_ddp()->set_bucket_mb(0); },
             "strategy.ddp.bucket_mb", "above 0"},
        Case{"BucketOfSharded",
             [](auto* s) { s->mutable_strategy()->mutable_sharded_ddp()->set_bucket_mb(-1); },
             "strategy.sharded_ddp.bucket_mb", "above 0"},
        Case{"ReduceEvery",
             [](auto* s) {
               s->mutable_strategy()->mutable_sharded_ddp()->set_reduce_every(
                   static_cast<v1::ShardedDdpSpec::ReduceEvery>(9));
             },
             "strategy.sharded_ddp.reduce_every", "9"},
        Case{"NoOptimizer", [](auto* s) { s->clear_optimizer(); }, "optimizer", "fit needs it"},
        Case{"NoKindOfOptimizer", [](auto* s) { s->mutable_optimizer()->clear_kind(); },
             "optimizer", "one of: adamw, sgd"},
        Case{"Lr", [](auto* s) { Adamw(s)->set_lr(-1); }, "optimizer.adamw.lr", "found -1"},
        Case{"NoLr", [](auto* s) { s->mutable_optimizer()->mutable_sgd(); }, "optimizer.sgd.lr",
             "is missing"},
        Case{"LrInfinite",
             [](auto* s) { Adamw(s)->set_lr(std::numeric_limits<double>::infinity()); },
             "optimizer.adamw.lr", "finite"},
        Case{"OneBeta", [](auto* s) { Adamw(s)->add_betas(0.9); }, "optimizer.adamw.betas",
             "found a list of 1; allowed: 2 numbers"},
        Case{"Beta", [](auto* s) { Adamw(s)->add_betas(0.9), Adamw(s)->add_betas(1); },
             "optimizer.adamw.betas[1]", "found 1; allowed: from 0 to below 1"},
        Case{"Eps", [](auto* s) { Adamw(s)->set_eps(0); }, "optimizer.adamw.eps", "above 0"},
        Case{"Decay", [](auto* s) { Adamw(s)->set_weight_decay(-0.1); },
             "optimizer.adamw.weight_decay", "0 or more"},
        Case{"Momentum",
             [](auto* s) {
               s->mutable_optimizer()->mutable_sgd()->set_lr(1);
               s->mutable_optimizer()->mutable_sgd()->set_momentum(1.5);
             },
             "optimizer.sgd.momentum", "found 1.5"},
        Case{"Warmup", [](auto* s) { Cosine(s)->set_warmup_steps(101); },
             "schedule.warmup_cosine.warmup_steps", "found 101"},
        Case{"WarmupTotal", [](auto* s) { Cosine(s)->set_total_steps(9); },
             "schedule.warmup_cosine.warmup_steps", "at most total_steps, 9"},
        Case{"MinRatio", [](auto* s) { Cosine(s)->set_min_ratio(1.1); },
             "schedule.warmup_cosine.min_ratio", "0 to 1"},
        Case{"NoKindOfSchedule", [](auto* s) { s->mutable_schedule()->clear_kind(); }, "schedule",
             "one of: constant, warmup_cosine"},
        Case{"NoBatch", [](auto* s) { s->clear_batch(); }, "batch.per_rank", "is missing"},
        Case{"Accumulate", [](auto* s) { s->mutable_batch()->set_accumulate(0); },
             "batch.accumulate", "found 0; allowed: 1 to"},
        Case{"Clip", [](auto* s) { s->set_clip_grad_norm(0); }, "clip_grad_norm", "above 0"},
        Case{"Smoothing",
             [](auto* s) { s->mutable_loss()->mutable_cross_entropy()->set_label_smoothing(1); },
             "loss.cross_entropy.label_smoothing", "found 1; allowed: from 0 to below 1"},
        Case{"NoKindOfLoss", [](auto* s) { s->mutable_loss(); }, "loss",
             "one of: cross_entropy, mse"},
        Case{"MseOfTokens", [](auto* s) { s->mutable_loss()->mutable_mse(); }, "loss",
             "found mse, but the model gives logits of tokens"},
        Case{"MseOfTorchscriptTokens",
             [](auto* s) {
               s->mutable_model()->mutable_torchscript()->set_path("/m.pt");
               s->mutable_model()->mutable_torchscript()->set_vocab_size(256);
               s->mutable_model()->mutable_torchscript()->set_context(32);
               s->mutable_loss()->mutable_mse();
             },
             "loss", "found mse, but the model gives logits of tokens"},
        Case{"NoSteps",
             [](auto* s) {
               s->clear_schedule();
               s->mutable_stages(0)->mutable_fit()->set_steps(0);
             },
             "stages[0].fit.steps", "found 0; allowed: 1 or more"},
        Case{"NoLength",
             [](auto* s) {
               s->clear_schedule();
               s->mutable_stages(0)->mutable_fit()->clear_length();
             },
             "stages[0].fit", "nothing is chosen; allowed is one of: steps, epochs"},
        Case{"NoEpochs", [](auto* s) { s->mutable_stages(0)->mutable_fit()->set_epochs(0); },
             "stages[0].fit.epochs", "found 0; allowed: 1 to"},
        Case{"NoTestData", [](auto* s) { s->add_stages()->mutable_test(); }, "data.test",
             "is missing, but stages[2].test needs it"},
        Case{"NoStage", [](auto* s) { s->clear_stages(); }, "stages", "is missing or empty"},
        Case{"NoKindOfStage", [](auto* s) { s->add_stages(); }, "stages[2]",
             "one of: fit, validate, test"},
        Case{"Keep", [](auto* s) { s->mutable_checkpoint()->set_keep(0); }, "checkpoint.keep",
             "found 0; allowed: 1 or more"},
        Case{"NoDirectory", [](auto* s) { s->mutable_checkpoint()->clear_directory(); },
             "checkpoint.directory", "is missing"},
        Case{"EmptyUnit", [](auto* s) { s->mutable_activation_checkpointing()->add_unit(""); },
             "activation_checkpointing.unit[0]", "is empty"},
        Case{"NoProfileDirectory", [](auto* s) { s->mutable_profile()->add_steps(3); },
             "profile.directory", "is missing"},
        Case{"WatchdogWithoutUnit", [](auto* s) { s->mutable_watchdog()->set_no_progress("90"); },
             "watchdog.no_progress",
             "found '90'; allowed: a number above 0 with its unit, such as 90s"},
        Case{"WatchdogOf0", [](auto* s) { s->mutable_watchdog()->set_no_progress("0s"); },
             "watchdog.no_progress", "found '0s'"},
        Case{"WatchdogForEver", [](auto* s) { s->mutable_watchdog()->set_startup("inf"); },
             "watchdog.startup", "found 'inf'"},
        Case{"WatchdogBelow0", [](auto* s) { s->mutable_watchdog()->set_startup("-1h"); },
             "watchdog.startup", "found '-1h'"},
        Case{"NoProfileSteps", [](auto* s) { s->mutable_profile()->set_directory("/d"); },
             "profile.steps", "is missing or empty"},
        Case{"ProfileStepBeyondTheLast",
             [](auto* s) {
               s->mutable_profile()->set_directory("/d");
               s->mutable_profile()->add_steps(101);
             },
             "profile.steps[0]", "found 101; allowed: 1 to 100"},
        Case{"ProfileOfValidation",
             [](auto* s) {
               s->mutable_profile()->set_directory("/d");
               s->mutable_profile()->add_steps(1);
               s->clear_stages();
               s->add_stages()->mutable_validate();
             },
             "profile", "has no steps to record"},
        Case{"ProfileStep0",
             [](auto* s) {
               s->mutable_profile()->set_directory("/d");
               s->mutable_profile()->add_steps(0);
             },
             "profile.steps[0]", "found 0; allowed: 1 or more"},
        Case{"NoTensorboardFolder", [](auto* s) { s->mutable_metrics(); }, "metrics.tensorboard",
             "is missing"},
        Case{"TensorboardIsTheFolderOfCheckpoints",
             [](auto* s) {
               s->mutable_checkpoint()->set_directory("/c/d");
               s->mutable_metrics()->set_tensorboard("/c/./d/");
             },
             "metrics.tensorboard", "found /c/./d/, which is checkpoint.directory (/c/d)"},
        Case{"TensorboardAmongCheckpoints",
             [](auto* s) {
               s->mutable_checkpoint()->set_directory("/c/d");
               s->mutable_metrics()->set_tensorboard("/c/d/logs");
             },
             "metrics.tensorboard", "which lies in checkpoint.directory (/c/d); allowed: "},
        Case{"TensorboardInTheWeights",
             [](auto* s) {
               s->mutable_model()->set_weights("/w.safetensors");
               s->mutable_metrics()->set_tensorboard("/w.safetensors/logs");
             },
             "metrics.tensorboard", "but /w.safetensors is model.weights; allowed: "},
        Case{"TensorboardIsTheExport",
             [](auto* s) {
               s->mutable_export_()->set_path("/e");
               s->mutable_metrics()->set_tensorboard("/e");
             },
             "export.path", "which is metrics.tensorboard, too"},
        Case{"NoRule", [](auto* s) { s->mutable_trainable()->add_rules(); }, "trainable.rules[0]",
             "one of: freeze, unfreeze"},
        Case{"EmptyRule", [](auto* s) { s->mutable_trainable()->add_rules()->set_unfreeze(""); },
             "trainable.rules[0].unfreeze", "is empty; allowed: a pattern"},
        Case{"TimeLimitWithoutUnit", [](auto* s) { s->set_time_limit("90"); }, "time_limit",
             "found '90'; allowed: "},
        Case{"TimeLimitOf0", [](auto* s) { s->set_time_limit("0s"); }, "time_limit", "found '0s'"},
        Case{"NoExport", [](auto* s) { s->mutable_export_()->clear_path(); }, "export.path",
             "is missing"}),
    [](const auto& info) { return info.param.name; });

// A job with 100 given steps, and an unknown number of others.
v1::JobSpec ByEpochs() {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.add_stages()->mutable_fit()->set_epochs(2);
  return spec;
}

TEST(TotalSteps, AreNotKnownOfAJobThatCountsInEpochs) {
  EXPECT_EQ(TotalSteps(Parse(kGpt2Job)), 100u);
  EXPECT_EQ(TotalSteps(ByEpochs()), std::nullopt);
  EXPECT_TRUE(Trains(ByEpochs()));
  v1::JobSpec tests;
  tests.add_stages()->mutable_test();
  EXPECT_FALSE(Trains(tests));
  EXPECT_EQ(TotalSteps(tests), 0u);
}

TEST(ValidateSteps, FindsWhatOnlyTheNumberOfStepsShows) {
  v1::JobSpec spec = ByEpochs();
  Cosine(&spec)->set_warmup_steps(150);
  spec.mutable_profile()->set_directory("/d");
  spec.mutable_profile()->add_steps(400);
  spec = ResolveDefaults(spec);
  EXPECT_FALSE(spec.schedule().warmup_cosine().has_total_steps()) << "the ranks know it";
  const v1::SpecProblems known = ValidateSpec(spec);
  EXPECT_TRUE(known.problems().empty()) << FormatProblems(known);
  EXPECT_TRUE(ValidateSteps(spec, 400).problems().empty());
  const v1::SpecProblems problems = ValidateSteps(spec, 140);
  ASSERT_EQ(problems.problems_size(), 2);
  EXPECT_EQ(problems.problems(0).path(), "schedule.warmup_cosine.warmup_steps");
  EXPECT_EQ(problems.problems(1).path(), "profile.steps[0]");
}

TEST(FormatProblems, NamesFileAndLineWhereKnown) {
  v1::SpecProblems problems;
  auto* problem = problems.add_problems();
  problem->set_path("a.b");
  problem->set_message("found x");
  problem->set_line(7);
  EXPECT_EQ(FormatProblems(problems), "a.b: found x\n");
  EXPECT_EQ(FormatProblems(problems, "job.yaml"), "job.yaml:7: a.b: found x\n");
}

}  // namespace
}  // namespace muster::jobspec
