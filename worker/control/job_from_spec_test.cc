#include "worker/control/job_from_spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>

namespace muster::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A valid job with `settings` on top, without defaults filled in.
v1::JobSpec Spec(const std::string& settings = "") {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "rows" world_size: 2
    model { mlp { inputs: 4 classes: 3 } }
    data { train { safetensors { path: "/d/train.safetensors" } } }
    batch { per_rank: 8 }
    stages { fit { steps: 60 } })",
                                                            &spec));
  v1::JobSpec more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  if (!more.has_optimizer()) spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  if (more.data().has_train()) spec.clear_data();
  if (more.has_model()) spec.clear_model();
  spec.MergeFrom(more);
  return spec;
}

train::Job JobOf(const std::string& settings = "") {
  const auto job = JobFromSpec(Spec(settings));
  EXPECT_TRUE(job.ok()) << settings << "\n" << job.status();
  return job.ok() ? *job : train::Job();
}

TEST(JobFromSpec, WhatIsLeftOutHasItsDefault) {
  const train::Job job = JobOf();
  EXPECT_TRUE(std::holds_alternative<parallel::DdpOptions>(job.strategy));
  EXPECT_TRUE(std::holds_alternative<optim::Constant>(job.schedule));
  EXPECT_EQ(job.batch.accumulate, 1);
  EXPECT_EQ(job.batch.order, data::Order::kShuffled);
  EXPECT_EQ(job.numerics.threads, 1);
  EXPECT_EQ(JobOf("threads: 3").numerics.threads, 3);
  EXPECT_EQ(job.numerics.precision, train::Precision::kFloat32);
  EXPECT_EQ(job.spec.optimizer().sgd().weight_decay(), 0);
  EXPECT_TRUE(job.spec.optimizer().sgd().has_weight_decay()) << "what the ranks compare";
  const auto adamw =
      std::get<optim::AdamWOptions>(JobOf("optimizer { adamw { lr: 0.5 } }").optimizer->kind);
  EXPECT_EQ(adamw.beta2, 0.999);
}

TEST(JobFromSpec, AveragesAndEvaluationAreThoseOfTheJob) {
  const train::Job plain = JobOf("export { path: '/d/out.safetensors' }");
  EXPECT_FALSE(plain.evaluation.averages.has_value());
  EXPECT_EQ(plain.weights_export->from, train::ExportConfig::From::kLast);
  EXPECT_EQ(plain.evaluation.reshard, train::EvaluationReshard::kAuto);
  EXPECT_EQ(JobOf("ema {}").evaluation.averages->decay, 0.999);
  const train::Job job = JobOf(R"(
    ema { decay: 0.5 every: 3 evaluate: true }
    evaluation { reshard: NEVER }
    export { path: "/d/out.safetensors" from: EMA })");
  EXPECT_EQ(job.evaluation.averages->decay, 0.5);
  EXPECT_EQ(job.evaluation.averages->every, 3);
  EXPECT_TRUE(job.evaluation.averages->evaluate);
  EXPECT_EQ(job.weights_export->from, train::ExportConfig::From::kAverages);
  EXPECT_EQ(job.evaluation.reshard, train::EvaluationReshard::kNever);
  EXPECT_EQ(JobOf("evaluation { reshard: ALWAYS }").evaluation.reshard,
            train::EvaluationReshard::kAlways);
}

TEST(JobFromSpec, TheOrderIsTheOneOfTheJob) {
  EXPECT_EQ(JobOf("batch { order: SHUFFLED }").batch.order, data::Order::kShuffled);
  EXPECT_EQ(JobOf("batch { order: SHUFFLED_V2 }").batch.order, data::Order::kShuffledV2);
  EXPECT_EQ(JobOf("batch { order: SEQUENTIAL }").batch.order, data::Order::kSequential);
}

TEST(JobFromSpec, AFitStageHasItsLimitAndWhatItsPassesDecide) {
  const auto fit_of = [](const std::string& fit) {
    return std::get<train::FitStage>(
        JobOf("data { validate { safetensors { path: '/d/v.safetensors' } } } "
              "checkpoint { directory: '/c' } stages { fit { steps: 5 validate_every: 1 " +
              fit + "} }")
            .stages.at(1));
  };
  EXPECT_FALSE(fit_of("").passes.any());
  EXPECT_EQ(fit_of("").limit_steps, 0);
  EXPECT_EQ(fit_of("limit_steps: 3").limit_steps, 3);
  const train::PassRules defaults = fit_of("early_stopping {} keep_best {}").passes;
  EXPECT_EQ(defaults.early_stopping->criterion.metric, train::Metric::kLoss);
  EXPECT_FALSE(defaults.early_stopping->criterion.larger_is_better);
  EXPECT_EQ(defaults.early_stopping->patience, 3);
  EXPECT_EQ(defaults.keep_best->metric, train::Metric::kLoss);
  const train::PassRules rules =
      fit_of(
          "early_stopping { metric: ACCURACY patience: 1 min_delta: 0.5 } "
          "keep_best { mode: MAX }")
          .passes;
  EXPECT_EQ(rules.early_stopping->criterion.metric, train::Metric::kAccuracy);
  EXPECT_TRUE(rules.early_stopping->criterion.larger_is_better);
  EXPECT_EQ(rules.early_stopping->patience, 1);
  EXPECT_EQ(rules.early_stopping->min_delta, 0.5);
  EXPECT_TRUE(rules.keep_best->larger_is_better);
}

TEST(JobFromSpec, TheExportIsOfTheLastStepOrOfTheBestCheckpoint) {
  const auto from = [](const std::string& setting) {
    return JobOf(
               "data { validate { safetensors { path: '/d/v.safetensors' } } } "
               "checkpoint { directory: '/c' } "
               "stages { fit { steps: 5 validate_every: 1 keep_best {} } } "
               "export { path: '/e.safetensors' " +
               setting + "}")
        .weights_export->from;
  };
  EXPECT_EQ(from(""), train::ExportConfig::From::kLast);
  EXPECT_EQ(from("from: LAST"), train::ExportConfig::From::kLast);
  EXPECT_EQ(from("from: BEST"), train::ExportConfig::From::kBest);
}

// A coordinator of another version may have accepted the job.
TEST(JobFromSpec, AJobThatIsNotValidIsRefusedWithEveryProblem) {
  v1::JobSpec spec = Spec();
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(1.5);
  spec.mutable_batch()->set_per_rank(0);
  const absl::Status status = JobFromSpec(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the job is not valid:"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("optimizer.sgd.momentum: found 1.5; allowed: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("batch.per_rank: is missing or 0"));
}

TEST(JobFromSpec, AJobOnGpusIsRefusedByThisProgram) {
  const absl::Status status = JobFromSpec(Spec("device: CUDA")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "device: found cuda; allowed: cpu (this muster-worker is built without CUDA)");
}

TEST(JobFromSpec, WhatThisProgramDoesNotKnowIsRefusedByName) {
  v1::JobSpec precision = Spec();
  precision.set_precision(static_cast<v1::JobSpec::Precision>(77));
  EXPECT_THAT(std::string(JobFromSpec(precision).status().message()),
              HasSubstr("precision: found the unknown number 77"));
  // An alternative of a later version arrives as if no alternative was set.
  v1::JobSpec data = Spec();
  data.mutable_data()->mutable_train()->clear_kind();
  EXPECT_THAT(std::string(JobFromSpec(data).status().message()), HasSubstr("data.train: "));
  v1::JobSpec stage = Spec();
  stage.add_stages();
  EXPECT_THAT(std::string(JobFromSpec(stage).status().message()), HasSubstr("stages[1]"));
}

TEST(JobFromSpec, DataIsOfItsKind) {
  const auto train = [](const std::string& data) { return *JobOf(data).data.train; };
  const auto rows = std::get<train::RowFiles>(train(""));
  EXPECT_THAT(rows.paths, ElementsAre("/d/train.safetensors"));
  EXPECT_FALSE(rows.per_rank);
  const auto own = std::get<train::RowFiles>(
      train("data { train { safetensors {} per_rank: '/d/0' per_rank: '/d/1' } }"));
  EXPECT_THAT(own.paths, ElementsAre("/d/0", "/d/1"));
  EXPECT_TRUE(own.per_rank);
  const auto npy = std::get<data::NpyOptions>(train(
      "data { train { npy { inputs: '/d/a' inputs: '/d/b' labels: '/d/c' labels: '/d/d' } } }"));
  EXPECT_THAT(npy.inputs, ElementsAre("/d/a", "/d/b"));
  EXPECT_THAT(npy.labels, ElementsAre("/d/c", "/d/d"));
  const auto by_name = std::get<data::NpyOptions>(
      train("model { exported: '/m' } "
            "data { train { npy { arrays { name: 'ids' path: '/d/a' path: '/d/b' } } } }"));
  ASSERT_EQ(by_name.arrays.size(), 1u);
  EXPECT_EQ(by_name.arrays[0].name, "ids");
  EXPECT_THAT(by_name.arrays[0].paths, ElementsAre("/d/a", "/d/b"));
  const auto tokens = std::get<train::TokenFiles>(
      train("model { gpt2 { vocab_size: 9 context: 8 layers: 1 heads: 1 width: 8 } } "
            "data { train { tokens { path: '/d/t' dtype: UINT32 } } }"));
  EXPECT_THAT(tokens.paths, ElementsAre("/d/t"));
  EXPECT_EQ(tokens.type, data::TokenType::kUint32);
}

TEST(JobFromSpec, StagesThatPredictAreThoseOfTheJobFile) {
  const train::Job job = JobOf(R"(
      data { predict { npy { inputs: '/d/a' } } }
      stages { predict { output: '/d/p.npy' } }
      stages { predict { output: '/d/q.npy' what: CLASSES overwrite: true } })");
  EXPECT_THAT(std::get<data::NpyOptions>(*job.data.predict).inputs, ElementsAre("/d/a"));
  ASSERT_EQ(job.stages.size(), 3u);
  const auto& logits = std::get<train::PredictStage>(job.stages[1]);
  EXPECT_EQ(logits.output, "/d/p.npy");
  EXPECT_EQ(logits.what, train::PredictStage::What::kLogits);
  EXPECT_FALSE(logits.overwrite || logits.generate.has_value());
  const auto& classes = std::get<train::PredictStage>(job.stages[2]);
  EXPECT_EQ(classes.what, train::PredictStage::What::kClasses);
  EXPECT_TRUE(classes.overwrite);
}

TEST(JobFromSpec, AJobThatOnlyGeneratesHasNeitherDataNorBatch) {
  v1::JobSpec spec;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      name: "texts" world_size: 2
      model { gpt2 { vocab_size: 9 context: 8 layers: 1 heads: 1 width: 8 } }
      stages { predict { output: "/d/t.json" generate {
        prompts { tokens: 1 tokens: 2 } prompts { tokens: 3 }
        max_tokens: 4 temperature: 0.5 top_k: 3 seed: 18446744073709551615 } } })",
                                                            &spec));
  const auto job = JobFromSpec(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_GE(job->batch.per_rank, 1);
  EXPECT_GE(job->batch.accumulate, 1);
  const train::GenerateConfig generate = *std::get<train::PredictStage>(job->stages[0]).generate;
  EXPECT_THAT(generate.prompts, ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_EQ(generate.max_tokens, 4);
  EXPECT_EQ(generate.sampling.temperature, 0.5);
  EXPECT_EQ(generate.sampling.top_k, 3);
  EXPECT_EQ(generate.sampling.seed, UINT64_MAX);
}

TEST(JobFromSpec, StrategiesOptimizersAndSchedulesAreThoseOfTheJobFile) {
  const auto sharded = std::get<parallel::ShardedDdpOptions>(
      JobOf("strategy { sharded_ddp { bucket_mb: 2 reduce_dtype: BFLOAT16 } }").strategy);
  EXPECT_EQ(sharded.bucket_bytes, 2 << 20);
  EXPECT_TRUE(sharded.reduce_in_bfloat16);
  const auto fsdp = std::get<parallel::FsdpOptions>(
      JobOf("strategy { fsdp { reshard_after_forward: false frozen: RESIDENT "
            "unit: 'lm_head' unit: 'block' replicate: '*norm*' } }")
          .strategy);
  EXPECT_FALSE(fsdp.reshard_after_forward);
  EXPECT_TRUE(fsdp.frozen_resident);
  EXPECT_EQ(fsdp.units, (std::vector<std::string>{"lm_head", "block"}));
  EXPECT_EQ(fsdp.replicate, std::vector<std::string>{"*norm*"});
  const train::Job job = JobOf(R"(
      optimizer { lion { lr: 0.5 weight_decay: 2 } groups { match: "*" lr_scale: 0.25 } }
      schedule { step { warmup_steps: 3 step_size: 5 gamma: 0.5 } })");
  EXPECT_EQ(job.optimizer->lr, 0.5);
  EXPECT_EQ(std::get<optim::LionOptions>(job.optimizer->kind).weight_decay, 2);
  ASSERT_EQ(job.optimizer->groups.size(), 1u);
  EXPECT_EQ(job.optimizer->groups[0].lr_scale, 0.25);
  EXPECT_FALSE(job.optimizer->groups[0].weight_decay.has_value());
  const auto step = std::get<optim::StepDecay>(job.schedule);
  EXPECT_EQ(step.warmup_steps, 3);
  EXPECT_EQ(step.step_size, 5);
  EXPECT_EQ(step.gamma, 0.5);
}

TEST(JobFromSpec, EachOptimizerOfTheSchemaIsOneOfItsOwn) {
  std::set<size_t> kinds;
  const auto* oneof = v1::OptimizerSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < oneof->field_count(); ++i) {
    const std::string name(oneof->field(i)->name());
    const train::Job job = JobOf("optimizer { " + name + " { lr: 0.5 } }");
    ASSERT_TRUE(job.optimizer.has_value()) << name;
    EXPECT_EQ(job.optimizer->lr, 0.5) << name;
    EXPECT_TRUE(kinds.insert(job.optimizer->kind.index()).second) << name;
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<optim::OptimizerOptions>);
}

TEST(JobFromSpec, OptionsOfOptimizersAreThoseOfTheJobFile) {
  const auto kind = [](const std::string& options) {
    return JobOf("optimizer { " + options + " }").optimizer->kind;
  };
  const auto adamw = std::get<optim::AdamWOptions>(
      kind("adamw { lr: 1 betas: 0.25 betas: 0.5 eps: 0.125 weight_decay: 2 }"));
  EXPECT_EQ(adamw.beta1, 0.25);
  EXPECT_EQ(adamw.beta2, 0.5);
  EXPECT_EQ(adamw.eps, 0.125);
  EXPECT_EQ(adamw.weight_decay, 2);
  const auto sgd = std::get<optim::SgdOptions>(
      kind("sgd { lr: 1 momentum: 0.5 weight_decay: 2 nesterov: true }"));
  EXPECT_EQ(sgd.momentum, 0.5);
  EXPECT_EQ(sgd.weight_decay, 2);
  EXPECT_TRUE(sgd.nesterov);
  const auto adam = std::get<optim::AdamOptions>(
      kind("adam { lr: 1 betas: 0.25 betas: 0.5 eps: 3 weight_decay: 2 }"));
  EXPECT_EQ(adam.beta1, 0.25);
  EXPECT_EQ(adam.beta2, 0.5);
  EXPECT_EQ(adam.eps, 3);
  EXPECT_EQ(adam.weight_decay, 2);
  const auto lion =
      std::get<optim::LionOptions>(kind("lion { lr: 1 betas: 0.25 betas: 0.5 weight_decay: 2 }"));
  EXPECT_EQ(lion.beta1, 0.25);
  EXPECT_EQ(lion.beta2, 0.5);
  EXPECT_EQ(lion.weight_decay, 2);
  const auto adadelta =
      std::get<optim::AdadeltaOptions>(kind("adadelta { lr: 1 rho: 0.25 eps: 3 weight_decay: 2 }"));
  EXPECT_EQ(adadelta.rho, 0.25);
  EXPECT_EQ(adadelta.eps, 3);
  EXPECT_EQ(adadelta.weight_decay, 2);
}

TEST(JobFromSpec, WithoutTrainingThereIsNoOptimizer) {
  v1::JobSpec spec = Spec();
  spec.clear_optimizer();
  spec.clear_stages();
  spec.add_stages()->mutable_validate();
  *spec.mutable_data()->mutable_validate() = spec.data().train();
  spec.mutable_data()->clear_train();
  const auto job = JobFromSpec(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->optimizer.has_value());
  EXPECT_FALSE(job->data.train.has_value());
  ASSERT_EQ(job->stages.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<train::ValidateStage>(job->stages[0]));
}

TEST(JobFromSpec, StagesAreThoseOfTheJob) {
  const train::Job job = JobOf(R"(
    data { test { safetensors { path: "/d/test.safetensors" } } }
    schedule { linear {} }
    stages { test {} } stages { fit { epochs: 3 } })");
  ASSERT_EQ(job.stages.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<train::TestStage>(job.stages[1]));
  EXPECT_EQ(std::get<train::FitStage>(job.stages[0]).epochs, 0);
  EXPECT_EQ(std::get<train::FitStage>(job.stages[2]).epochs, 3);
  EXPECT_TRUE(job.data.test.has_value());
  EXPECT_EQ(std::get<optim::Linear>(job.schedule).total_steps, 0) << "the session knows it";
}

}  // namespace
}  // namespace muster::control
