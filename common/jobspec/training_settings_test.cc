#include "common/jobspec/training_settings.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The settings in a checkpoint of a job with this file.
v1::JobSpec SettingsOf(const std::string& file) {
  const std::string json = TrainingSettingsJson(ResolveDefaults(Parse(file)));
  const auto settings = TrainingSettingsFromJson(json);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return *settings;
}

// A job of 100 steps.
std::string Job(const std::string& more) {
  return R"(
    name: "rows" world_size: 2
    model { mlp { inputs: 4 classes: 3 } }
    data { train { safetensors { path: "/d/train.safetensors" } } }
    stages { fit { steps: 100 } } )" +
         more;
}
constexpr char kSgd[] = "optimizer { sgd { lr: 0.5 } } batch { per_rank: 8 } ";

TEST(TrainingSettings, AreWhatDecidesTheTraining) {
  const v1::JobSpec settings = SettingsOf(kGpt2Job);
  EXPECT_FALSE(settings.has_model());
  EXPECT_FALSE(settings.has_checkpoint());
  EXPECT_EQ(settings.stages_size(), 0);
  EXPECT_EQ(settings.batch().per_rank(), 0u);
  EXPECT_EQ(settings.batch().accumulate(), 1u);
  EXPECT_EQ(settings.optimizer().adamw().betas(1), 0.999);
  EXPECT_EQ(settings.precision(), v1::JobSpec::FLOAT32);
}

TEST(TrainingSettings, LeaveOutTheEndOfTheirOwnStages) {
  EXPECT_FALSE(SettingsOf(kGpt2Job).schedule().warmup_cosine().has_total_steps());
  const std::string sooner = Job(std::string(kSgd) + "schedule { linear { total_steps: 70 } }");
  EXPECT_EQ(SettingsOf(sooner).schedule().linear().total_steps(), 70u);
}

TEST(TrainingSettings, AreTheSameAfterJson) {
  const v1::JobSpec spec = ResolveDefaults(Parse(
      Job(std::string(kSgd) +
          "seed: 18446744073709551615 clip_grad_norm: 0.1 precision: FLOAT16 ema { decay: 0.99 } "
          "trainable { rules { freeze: \"*\" } rules { unfreeze: \"b\" } }")));
  const auto back = TrainingSettingsFromJson(TrainingSettingsJson(spec));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*back, TrainingSettings(spec))) << back->DebugString();
}

TEST(TrainingSettings, OfANewerProgramAreReadAsFarAsTheyAreKnown) {
  const auto settings = TrainingSettingsFromJson(R"({"seed": "3", "later": {"a": 1}})");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->seed(), 3u);
  EXPECT_EQ(TrainingSettingsFromJson("[]").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TakeLeftOut, TakesWhatTheFileDoesNotWrite) {
  const v1::JobSpec other = SettingsOf(
      Job("optimizer { adamw { lr: 0.5 betas: [0.8, 0.9] } "
          "groups { match: \"*bias\" weight_decay: 0 } } "
          "batch { per_rank: 4 accumulate: 3 order: SEQUENTIAL } seed: 7 clip_grad_norm: 1 "
          "schedule { constant { warmup_steps: 5 } }"));
  const TakenSettings taken = TakeLeftOut(
      Parse(Job("optimizer { adamw { lr: 0.002 weight_decay: 0.2 } } batch { per_rank: 8 }")),
      other);
  const v1::JobSpec spec = ResolveDefaults(taken.spec);
  EXPECT_EQ(spec.seed(), 7u);
  EXPECT_EQ(spec.clip_grad_norm(), 1);
  EXPECT_EQ(spec.batch().per_rank(), 8u);
  EXPECT_EQ(spec.batch().accumulate(), 3u);
  EXPECT_EQ(spec.batch().order(), v1::BatchSpec::SEQUENTIAL);
  EXPECT_EQ(spec.schedule().constant().warmup_steps(), 5u);
  EXPECT_THAT(spec.optimizer().adamw().betas(), ElementsAre(0.8, 0.9));
  EXPECT_EQ(spec.optimizer().adamw().lr(), 0.002);
  EXPECT_EQ(spec.optimizer().adamw().weight_decay(), 0.2);
  EXPECT_EQ(spec.optimizer().groups(0).match(), "*bias");
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
  EXPECT_THAT(taken.taken, Contains("seed 7"));
  EXPECT_THAT(taken.taken, Contains("batch.order sequential"));
  EXPECT_THAT(taken.differing,
              ElementsAre("optimizer.adamw.lr: 0.002 in the job file, 0.5 in the checkpoint",
                          "optimizer.adamw.weight_decay: 0.2 in the job file, 0.01 in the "
                          "checkpoint"));
}

TEST(TakeLeftOut, SaysNothingOfTheSameJob) {
  const std::string file = Job(std::string(kSgd) + "seed: 3 clip_grad_norm: 2 ema {}");
  const TakenSettings taken = TakeLeftOut(Parse(file), SettingsOf(file));
  EXPECT_THAT(taken.taken, IsEmpty());
  EXPECT_THAT(taken.differing, IsEmpty());
}

TEST(TakeLeftOut, AListOfTheFileReplacesTheOther) {
  const v1::JobSpec other = SettingsOf(Job("optimizer { adamw { lr: 1 betas: [0.8, 0.9] } }"));
  const TakenSettings taken =
      TakeLeftOut(Parse(Job("optimizer { adamw { lr: 1 betas: [0.5, 0.6] } }")), other);
  EXPECT_THAT(taken.spec.optimizer().adamw().betas(), ElementsAre(0.5, 0.6));
  EXPECT_THAT(taken.differing, Contains("optimizer.adamw.betas[0]: 0.5 in the job file, 0.8 in "
                                        "the checkpoint"));
}

TEST(TakeLeftOut, AnotherChoiceOfTheFileReplacesTheWhole) {
  const v1::JobSpec other =
      SettingsOf(Job(std::string(kSgd) + "schedule { linear { warmup_steps: 3 min_ratio: 0.1 } }"));
  const TakenSettings taken =
      TakeLeftOut(Parse(Job(std::string(kSgd) + "schedule { constant {} }")), other);
  EXPECT_TRUE(taken.spec.schedule().has_constant());
  EXPECT_THAT(taken.differing,
              ElementsAre("schedule.constant: given in the job file, none in the checkpoint",
                          "schedule.linear: none in the job file, given in the checkpoint"));
}

TEST(TakeLeftOut, AnotherOptimizerTakesNothingOfTheOther) {
  const v1::JobSpec other =
      SettingsOf(Job("optimizer { adamw { lr: 1 } groups { match: \"*\" eps: 1 } }"));
  const TakenSettings taken = TakeLeftOut(Parse(Job(kSgd)), other);
  EXPECT_THAT(taken.spec.optimizer().groups(), IsEmpty());
}

TEST(TakeLeftOut, TheEndOfTheScheduleIsThatOfTheOwnStages) {
  v1::JobSpec file = Parse(kGpt2Job);
  file.clear_schedule();
  file.mutable_stages(0)->mutable_fit()->set_steps(300);
  const v1::JobSpec spec = ResolveDefaults(TakeLeftOut(file, SettingsOf(kGpt2Job)).spec);
  EXPECT_EQ(spec.schedule().warmup_cosine().warmup_steps(), 10u);
  EXPECT_EQ(spec.schedule().warmup_cosine().total_steps(), 300u);
}

TEST(TakeLeftOut, WhatDoesNotGoWithTheFileIsNotTaken) {
  const v1::JobSpec uneven =
      SettingsOf(Job(std::string(kSgd) + "uneven_inputs { stop_at_first {} } precision: FLOAT16"));
  ASSERT_EQ(uneven.batch().last(), v1::BatchSpec::UNEVEN);
  const auto taken = [&](const std::string& more) {
    return TakeLeftOut(Parse(Job("optimizer { sgd { lr: 0.5 } } " + more)), uneven).spec;
  };
  EXPECT_TRUE(taken("batch { per_rank: 1 }").uneven_inputs().has_stop_at_first());
  EXPECT_EQ(taken("batch { per_rank: 1 }").batch().last(), v1::BatchSpec::UNEVEN);
  EXPECT_FALSE(taken("batch { per_rank: 1 last: PAD }").has_uneven_inputs());
  EXPECT_TRUE(taken("batch { per_rank: 1 }").has_loss_scale());
  EXPECT_FALSE(taken("precision: FLOAT32 batch { per_rank: 1 }").has_loss_scale());
  const v1::JobSpec dropped = SettingsOf(Job(kSgd));
  const v1::JobSpec own =
      TakeLeftOut(
          Parse(Job("optimizer { sgd { lr: 0.5 } } batch { per_rank: 1 } uneven_inputs {join {}}")),
          dropped)
          .spec;
  EXPECT_EQ(ResolveDefaults(own).batch().last(), v1::BatchSpec::UNEVEN);
}

TEST(TakeLeftOut, RulesOfTrainableAreOnlyCompared) {
  const v1::JobSpec other =
      SettingsOf(Job(std::string(kSgd) + "trainable { rules { freeze: \"a\" } refresh: MANUAL }"));
  const TakenSettings without = TakeLeftOut(Parse(Job(kSgd)), other);
  EXPECT_THAT(without.spec.trainable().rules(), IsEmpty());
  EXPECT_EQ(without.spec.trainable().refresh(), v1::TrainableSpec::MANUAL);
  EXPECT_THAT(without.differing, IsEmpty());
  const TakenSettings with =
      TakeLeftOut(Parse(Job(std::string(kSgd) + "trainable { rules { freeze: \"b\" } }")), other);
  EXPECT_THAT(with.differing, ElementsAre(HasSubstr("\"b\" in the job file, \"a\" in the")));
}

TEST(TakeLeftOut, TakesTheOptimizerAsAWhole) {
  v1::JobSpec other = SettingsOf(Job(kSgd));
  SetLearningRate(0.25, &other);
  const TakenSettings taken = TakeLeftOut(Parse(Job("batch { per_rank: 8 }")), other);
  EXPECT_EQ(taken.spec.optimizer().sgd().lr(), 0.25);
  EXPECT_THAT(taken.taken, Contains("optimizer.sgd.lr 0.25"));
}

}  // namespace
}  // namespace muster::jobspec
