#include "common/jobfile/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/jobfile/jobfile.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(name: tiny
world_size: 2
model: {mlp: {inputs: 4, hidden: [8, 8], classes: 2}}
data: {train: {safetensors: {path: rows}}}
optimizer: {adamw: {lr: 0.1, betas: [0.9, 0.95]}}
batch: {per_rank: 1}
stages: {fit: {steps: 3}}
)";

absl::StatusOr<JobFile> Parse(const std::string& text, const std::vector<std::string>& settings) {
  return ParseJobFile(text, "j", "/file", {.settings = settings, .base_folder = "/here"});
}

v1::JobSpec Set(const std::vector<std::string>& settings, const std::string& text = kGood) {
  const auto job = Parse(text, settings);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->spec : v1::JobSpec();
}

TEST(Overrides, ReplaceAValueAndLeaveTheOthers) {
  const v1::JobSpec spec = Set({"optimizer.adamw.lr=1e-4", "batch.accumulate=3"});
  EXPECT_EQ(spec.optimizer().adamw().lr(), 1e-4);
  EXPECT_EQ(spec.optimizer().adamw().betas(1), 0.95);
  EXPECT_EQ(spec.batch().accumulate(), 3);
  EXPECT_EQ(spec.batch().per_rank(), 1);
  EXPECT_EQ(spec.stages(0).fit().steps(), 3);
}

TEST(Overrides, MakeWhatIsMissingOnTheWay) {
  const v1::JobSpec spec = Set({"checkpoint.directory=c", "seed=7", "strategy.ddp.bucket_mb=2"});
  EXPECT_EQ(spec.checkpoint().directory(), "/here/c");
  EXPECT_EQ(spec.seed(), 7);
  EXPECT_EQ(spec.strategy().ddp().bucket_mb(), 2);
}

TEST(Overrides, TheLastOneWins) {
  EXPECT_EQ(Set({"seed=1", "seed=2"}).seed(), 2);
  const v1::JobSpec spec =
      Set({"optimizer.adamw.eps=1e-3", "optimizer={sgd: {lr: 1}}", "optimizer.sgd.momentum=0.5"});
  EXPECT_EQ(spec.optimizer().sgd().lr(), 1);
  EXPECT_EQ(spec.optimizer().sgd().momentum(), 0.5);
}

TEST(Overrides, ReachElementsOfListsAlsoOfOneWrittenAsItsElement) {
  v1::JobSpec spec =
      Set({"stages[0].fit.steps=10", "stages[1]={fit: {steps: 5}}", "stages[2].fit.steps=6",
           "model.mlp.hidden[1]=9", "model.mlp.hidden[2]=10", "optimizer.adamw.betas=[0.5, 0.6]"});
  ASSERT_EQ(spec.stages_size(), 3);
  EXPECT_EQ(spec.stages(0).fit().steps(), 10);
  EXPECT_EQ(spec.stages(1).fit().steps(), 5);
  EXPECT_EQ(spec.stages(2).fit().steps(), 6);
  EXPECT_THAT(spec.model().mlp().hidden(), testing::ElementsAre(8, 9, 10));
  EXPECT_THAT(spec.optimizer().adamw().betas(), testing::ElementsAre(0.5, 0.6));
}

TEST(Overrides, RelativePathsAreAgainstTheirOwnFolder) {
  std::string text = std::string(kGood) + "checkpoint: {directory: c}\nexport: {path: out}\n";
  v1::JobSpec spec =
      Set({"data.train={safetensors: {path: [x, ../y, /z]}}", "export.path=w"}, text);
  EXPECT_THAT(spec.data().train().safetensors().path(),
              testing::ElementsAre("/here/x", "/y", "/z"));
  EXPECT_EQ(spec.export_().path(), "/here/w");
  EXPECT_EQ(spec.checkpoint().directory(), "/file/c");
  // One element of a list is not the list.
  spec = Set({"data.train.safetensors.path[1]=x"});
  EXPECT_THAT(spec.data().train().safetensors().path(),
              testing::ElementsAre("/file/rows", "/here/x"));
}

TEST(Overrides, ChangeNothingElseThatAnAliasShares) {
  std::string text = kGood;
  text.replace(text.find("stages:"), std::string::npos, "stages: [&s {fit: {steps: 3}}, *s]\n");
  const v1::JobSpec spec = Set({"stages[1].fit.steps=8"}, text);
  EXPECT_EQ(spec.stages(0).fit().steps(), 3);
  EXPECT_EQ(spec.stages(1).fit().steps(), 8);
}

TEST(Overrides, ReplaceABrokenValueOfTheFile) {
  std::string text = kGood;
  text.replace(text.find("lr: 0.1"), 7, "lr: fast");
  EXPECT_EQ(Set({"optimizer.adamw.lr=0.5"}, text).optimizer().adamw().lr(), 0.5);
}

TEST(Overrides, ReachTheNamesOfAMap) {
  std::string text = kGood;
  text.replace(text.find("{mlp"), text.find("\n", text.find("{mlp")) - text.find("{mlp"),
               "{plugin: {path: p.so, name: n, options: {a: '1'}}}");
  const v1::JobSpec spec = Set({"model.plugin.options.b='2'", "model.plugin.options.a='3'"}, text);
  EXPECT_EQ(spec.model().plugin().options().at("a"), "3");
  EXPECT_EQ(spec.model().plugin().options().at("b"), "2");
  EXPECT_EQ(spec.model().plugin().path(), "/file/p.so");
}

TEST(Overrides, ReachAMappingWithTheNameOfAnotherField) {
  v1::JobSpec spec = Set({"model.weights.file=w", "model.weights.take=a.*"});
  EXPECT_EQ(spec.model().weights_from().file(), "/here/w");
  EXPECT_EQ(spec.model().weights_from().take(0), "a.*");
  spec = Set({"model.weights={file: w}", "model.weights=/other"});
  EXPECT_EQ(spec.model().weights(), "/other");
  EXPECT_FALSE(spec.model().has_weights_from());
}

struct Case {
  const char* name;
  std::vector<std::string> settings;
  // The whole message after "j: N problems\n".
  std::string message;
};

class RefusedOverride : public testing::TestWithParam<Case> {};

TEST_P(RefusedOverride, NamesItselfInsteadOfALine) {
  const auto job = Parse(kGood, GetParam().settings);
  ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
  const std::string message = Message(job.status());
  EXPECT_THAT(message.substr(message.find('\n') + 1), HasSubstr(GetParam().message));
  const v1::SpecProblems problems = Problems(job.status());
  ASSERT_GT(problems.problems_size(), 0);
  for (const v1::SpecProblem& problem : problems.problems()) {
    EXPECT_EQ(problem.line(), 0) << problem.DebugString();
    EXPECT_THAT(problem.source(), HasSubstr("--set ")) << problem.DebugString();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedOverride,
    testing::Values(
        Case{"UnknownKey",
             {"sead=1"},
             "--set sead: unknown key; did you mean seed?; allowed: name, "},
        Case{"UnknownKeyBelow",
             {"optimizer.adamw.larning_rate=1"},
             "--set optimizer.adamw.larning_rate: unknown key; allowed: lr, betas, eps, "
             "weight_decay"},
        Case{"UnknownKeyInTheValue",
             {"batch={per_rank: 1, acumulate: 2}"},
             "--set batch: batch.acumulate: unknown key; did you mean accumulate?"},
        Case{"WrongValue",
             {"seed=x"},
             "--set seed: found 'x'; allowed: a whole number from 0 to 184"},
        Case{"NoValue", {"seed="}, "--set seed: has no value; allowed: a whole number"},
        Case{"OutOfRange", {"batch.per_rank=0"}, "--set batch.per_rank: is missing or 0"},
        Case{"BadElement",
             {"optimizer.adamw.betas=[0.9, x]"},
             "--set optimizer.adamw.betas: optimizer.adamw.betas[1]: found 'x'"},
        Case{"AnotherAlternative",
             {"optimizer.sgd.lr=0.1"},
             "--set optimizer.sgd.lr: optimizer.sgd: only one of adamw, sgd, lion, adam, adadelta "
             "is allowed, and optimizer.adamw is given; to replace it, write --set "
             "'optimizer={sgd: ...}'"},
        Case{"AnotherAlternativeOfAnotherSetting",
             {"schedule.constant=", "schedule.warmup_cosine.warmup_steps=1"},
             "schedule.constant is given"},
        Case{"AnotherAlternativeOfAnElement",
             {"stages[0].validate="},
             "to replace it, write --set 'stages[0]={validate: ...}'"},
        Case{"BeyondTheList",
             {"stages[2].fit.steps=1"},
             "--set stages[2].fit.steps: stages[2]: the list has 1 element; allowed: an index up "
             "to 1"},
        Case{"ListWithoutIndex",
             {"stages.fit.steps=1"},
             "--set stages.fit.steps: stages: is a list: say which element, as in stages[0].fit"},
        Case{"IndexOfNoList",
             {"batch[0].per_rank=1"},
             "--set batch[0].per_rank: batch: is not a list"},
        Case{"BelowAPath",
             {"model.weights=w", "model.weights.missing=initial"},
             "--set model.weights.missing: model.weights: found 'w' in the file; allowed: a "
             "mapping"},
        Case{"BelowAScalar",
             {"seed.x=1"},
             "--set seed.x: seed: has nothing below it; allowed: a whole"},
        Case{"NoEquals", {"seed"}, "--set seed: is not a setting; allowed: KEY=VALUE"},
        Case{"NoKey", {"=1"}, "is not a setting"},
        Case{"EmptyName", {"a..b=1"}, "is not a setting"},
        Case{"TrailingDot", {"seed.=1"}, "is not a setting"},
        Case{"UnclosedIndex", {"stages[0=1"}, "is not a setting"},
        Case{"IndexThatIsNoNumber", {"stages[x].fit=1"}, "is not a setting"},
        Case{"NegativeIndex", {"stages[-1].fit=1"}, "is not a setting"},
        Case{"HugeIndex", {"stages[99999999999].fit=1"}, "is not a setting"},
        Case{"TextAfterAnIndex", {"stages[0]fit=1"}, "is not a setting"},
        Case{"NoYaml", {"seed=[1"}, "--set seed: this is not YAML"},
        Case{"NoUtf8", {"name=\xe9"}, "--set name: holds bytes that are not UTF-8 text"},
        Case{"TwoDocuments", {"seed=1\n---\n2"}, "another document begins here"},
        Case{"AKeyThatIsNoName", {"batch={[1]: 2}"}, "found a list as a key"},
        Case{"Tilde", {"checkpoint.directory=~/c"}, "'~' has no meaning here"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Overrides, ProblemsOfTheFileKeepTheirLines) {
  const auto job =
      Parse(std::string(kGood) + "sead: 1\n", {"clip_grad_norm=no", "batch.per_rank=2"});
  EXPECT_THAT(Message(job.status()),
              testing::AllOf(HasSubstr("j: 2 problems\nj:8: sead: unknown key"),
                             HasSubstr("\n--set clip_grad_norm: found 'no'")));
}

TEST(Overrides, ACoordinatorsProblemIsGivenItsPlaceToo) {
  const auto job = Parse(kGood, {"batch.per_rank=2"});
  ASSERT_TRUE(job.ok());
  v1::SpecProblems problems;
  problems.add_problems()->set_path("batch.per_rank");
  problems.add_problems()->set_path("optimizer.adamw.lr");
  AddPlaces(*job, &problems);
  EXPECT_EQ(problems.problems(0).source(), "--set batch.per_rank");
  EXPECT_EQ(problems.problems(0).line(), 0);
  EXPECT_EQ(problems.problems(1).source(), "");
  EXPECT_EQ(problems.problems(1).line(), 5);
}

constexpr char kEverything[] = R"(name: all
world_size: 2
seed: 18446744073709551615
model: {plugin: {path: /p.so, name: p, options: {a: "1", b: yes, c: "x: y"}}}
data: {train: {tokens: {path: [a, b], dtype: uint16}}, validate: {tokens: {path: c}}}
optimizer: {adamw: {lr: 3.0e-8, betas: [0, 0.95]}, groups: [{match: "*bias", weight_decay: 0}]}
schedule: {constant: {}}
batch: {per_rank: 1, last: uneven}
uneven_inputs: {stop_at_first: {}}
precision: float16
trainable: {rules: [{freeze: "a.*"}, {unfreeze: "a.b"}]}
start: {checkpoint: other@7, what: weights+optimizer}
stages: [{fit: {steps: 3, validate_every: 1}}, {validate: {}}]
checkpoint: {directory: c}
priority: 0
)";

TEST(ChangeJob, WithoutSettingsIsTheSameJob) {
  for (const char* text : {kGood, kEverything}) {
    const v1::JobSpec spec = jobspec::ResolveDefaults(Set({}, text));
    const auto same = ChangeJob(spec, "job x", {});
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(same->spec.DebugString(), spec.DebugString());
  }
}

TEST(ChangeJob, HasTheSettingsAndTheRestStays) {
  v1::JobSpec expected = jobspec::ResolveDefaults(Set({}, kEverything));
  const auto changed = ChangeJob(
      expected, "job x",
      {.settings = {"optimizer.adamw.lr=1e-4", "stages[0].fit.steps=9", "export.path=w"},
       .base_folder = "/here"});
  ASSERT_TRUE(changed.ok()) << changed.status();
  expected.mutable_optimizer()->mutable_adamw()->set_lr(1e-4);
  expected.mutable_stages(0)->mutable_fit()->set_steps(9);
  expected.mutable_export_()->set_path("/here/w");
  EXPECT_EQ(changed->spec.DebugString(), expected.DebugString());
}

TEST(ChangeJob, ProblemsNameTheirSettings) {
  const auto changed = ChangeJob(jobspec::ResolveDefaults(Set({})), "job x",
                                 {.settings = {"optimizer.adamw.lr=fast", "learning=1"}});
  const v1::SpecProblems problems = Problems(changed.status());
  ASSERT_EQ(problems.problems_size(), 2) << changed.status();
  for (const auto& problem : problems.problems()) {
    EXPECT_THAT(problem.source(), HasSubstr("--set ")) << problem.DebugString();
  }
}

}  // namespace
}  // namespace muster::jobfile
