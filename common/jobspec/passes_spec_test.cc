// The settings that depend on validation passes.
#include <gtest/gtest.h>

#include <string>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using Metric = v1::ValidationMetric;

v1::FitStage* Fit(v1::JobSpec* spec) { return spec->mutable_stages(0)->mutable_fit(); }

// A valid job with all these settings.
v1::JobSpec Good() {
  v1::JobSpec spec = Parse(kGpt2Job);
  Fit(&spec)->mutable_early_stopping()->set_metric(Metric::PERPLEXITY);
  Fit(&spec)->mutable_keep_best();
  spec.mutable_export_()->set_from(v1::ExportSpec::BEST);
  return spec;
}

// A classifier of rows with this many classes.
v1::JobSpec Classifier(uint32_t classes) {
  v1::JobSpec spec = Good();
  spec.mutable_model()->clear_gpt2();
  spec.mutable_model()->mutable_mlp()->set_inputs(3);
  spec.mutable_model()->mutable_mlp()->set_classes(classes);
  for (auto* data : {spec.mutable_data()->mutable_train(), spec.mutable_data()->mutable_validate()})
    data->mutable_safetensors()->add_path("/d/rows.safetensors");
  Fit(&spec)->mutable_early_stopping()->set_metric(Metric::TOP_K_ACCURACY);
  return spec;
}

TEST(Passes, AreValidWithTheirDefaults) {
  for (const v1::JobSpec& spec : {Good(), Classifier(6)}) {
    EXPECT_TRUE(ValidateSpec(spec).problems().empty()) << FormatProblems(ValidateSpec(spec));
    const v1::JobSpec whole = ResolveDefaults(spec);
    EXPECT_TRUE(ValidateSpec(whole).problems().empty()) << FormatProblems(ValidateSpec(whole));
    EXPECT_EQ(whole.stages(0).fit().early_stopping().patience(), 3u);
    EXPECT_EQ(whole.stages(0).fit().early_stopping().min_delta(), 0);
    EXPECT_EQ(whole.stages(0).fit().keep_best().metric(), Metric::LOSS);
  }
}

TEST(Passes, AStageThatNeverValidatesCannotDecideByIt) {
  const SpecCase cases[] = {
      {"steps", [](v1::JobSpec* spec) { Fit(spec)->set_validate_every(101); },
       "stages[0].fit.validate_every",
       "found 101, but early_stopping needs a validation pass, and the stage has 100 steps; "
       "allowed: 1 to 100"},
      {"epochs",
       [](v1::JobSpec* spec) {
         Fit(spec)->set_epochs(2);
         Fit(spec)->set_validate_every(3);
       },
       "stages[0].fit.validate_every", "the stage has 2 epochs; allowed: 1 to 2"},
      {"limit", [](v1::JobSpec* spec) { Fit(spec)->set_limit_steps(9); }, "export.from",
       "ends before its first validation pass (limit_steps)"},
  };
  for (const SpecCase& one : cases) ExpectTheOneProblem(Good(), one);
  v1::JobSpec trial = Good();
  Fit(&trial)->set_limit_steps(9);
  trial.mutable_export_()->set_from(v1::ExportSpec::LAST);
  EXPECT_TRUE(ValidateSpec(trial).problems().empty()) << FormatProblems(ValidateSpec(trial));
}

TEST(Passes, ASampleNeedsPassesAndAPrompt) {
  v1::JobSpec good = Parse(kGpt2Job);
  Fit(&good)->mutable_sample()->set_text("a");
  good.mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
  EXPECT_TRUE(ValidateSpec(good).problems().empty()) << FormatProblems(ValidateSpec(good));
  EXPECT_EQ(ResolveDefaults(good).stages(0).fit().sample().max_tokens(), 64u);
  const SpecCase cases[] = {
      {"passes", [](v1::JobSpec* spec) { Fit(spec)->clear_validate_every(); },
       "stages[0].fit.validate_every", "sample needs it"},
      {"empty", [](v1::JobSpec* spec) { Fit(spec)->mutable_sample()->set_text(""); },
       "stages[0].fit.sample.text", "is empty"},
      {"tokenizer", [](v1::JobSpec* spec) { spec->mutable_model()->clear_tokenizer(); },
       "stages[0].fit.sample.text", "the model has no tokenizer"},
      {"document", [](v1::JobSpec* spec) { Fit(spec)->mutable_sample()->set_document(0); },
       "stages[0].fit.sample.document", "data.validate has no documents"},
      {"prompt", [](v1::JobSpec* spec) { Fit(spec)->mutable_sample()->clear_text(); },
       "stages[0].fit.sample", "one of: document, text"},
  };
  for (const SpecCase& one : cases) ExpectTheOneProblem(good, one);
}

TEST(Passes, WhereBetterIsFollowsFromTheMetricUnlessItIsSaid) {
  v1::JobSpec spec = Classifier(6);
  const auto mode_of = [&](Metric::Metric metric) {
    Fit(&spec)->mutable_early_stopping()->set_metric(metric);
    return ResolveDefaults(spec).stages(0).fit().early_stopping().mode();
  };
  EXPECT_EQ(mode_of(Metric::LOSS), Metric::MIN);
  EXPECT_EQ(mode_of(Metric::PERPLEXITY), Metric::MIN);
  EXPECT_EQ(mode_of(Metric::ACCURACY), Metric::MAX);
  EXPECT_EQ(mode_of(Metric::TOP_K_ACCURACY), Metric::MAX);
  EXPECT_EQ(ResolveDefaults(spec).stages(0).fit().keep_best().mode(), Metric::MIN);
  Fit(&spec)->mutable_early_stopping()->set_mode(Metric::MIN);
  EXPECT_EQ(mode_of(Metric::ACCURACY), Metric::MIN);
}

TEST(Passes, ALimitDoesNotMoveTheEndOfTheSchedule) {
  v1::JobSpec spec = Good();
  Fit(&spec)->set_limit_steps(30);
  spec.add_stages()->mutable_fit()->set_steps(20);
  spec.mutable_stages(2)->mutable_fit()->set_limit_steps(50);
  EXPECT_EQ(TotalSteps(spec), 50u) << "30 and 20";
  EXPECT_EQ(UnlimitedSteps(spec), 120u);
  EXPECT_EQ(ResolveDefaults(spec).schedule().warmup_cosine().total_steps(), 120u);
  spec.mutable_stages(2)->mutable_fit()->clear_steps();
  spec.mutable_stages(2)->mutable_fit()->set_epochs(1);
  EXPECT_EQ(TotalSteps(spec), std::nullopt);
}

class PassesProblem : public ::testing::TestWithParam<SpecCase> {};
TEST_P(PassesProblem, IsFound) { ExpectTheOneProblem(Good(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Cases, PassesProblem,
    ::testing::Values(
        SpecCase{"EarlyStoppingWithoutPasses",
                 [](v1::JobSpec* spec) {
                   Fit(spec)->clear_validate_every();
                   Fit(spec)->clear_keep_best();
                   spec->mutable_export_()->clear_from();
                 },
                 "stages[0].fit.validate_every",
                 "is missing or 0, but early_stopping needs it; allowed: 1 or more"},
        SpecCase{"KeepBestWithoutPasses",
                 [](v1::JobSpec* spec) {
                   Fit(spec)->clear_validate_every();
                   Fit(spec)->clear_early_stopping();
                 },
                 "stages[0].fit.validate_every", "but keep_best needs it"},
        SpecCase{"KeepBestWithoutCheckpoints", [](v1::JobSpec* spec) { spec->clear_checkpoint(); },
                 "checkpoint", "is missing, but stages[0].fit.keep_best needs it"},
        SpecCase{"OtherKeepBest",
                 [](v1::JobSpec* spec) {
                   v1::FitStage* fit = spec->add_stages()->mutable_fit();
                   fit->set_steps(5);
                   fit->set_validate_every(1);
                   fit->mutable_keep_best()->set_metric(Metric::ACCURACY);
                 },
                 "stages[2].fit.keep_best", "differs from stages[0].fit.keep_best"},
        SpecCase{"OtherMode",
                 [](v1::JobSpec* spec) {
                   v1::FitStage* fit = spec->add_stages()->mutable_fit();
                   fit->set_steps(5);
                   fit->set_validate_every(1);
                   fit->mutable_keep_best()->set_mode(Metric::MAX);
                 },
                 "stages[2].fit.keep_best", "the same metric and mode in all stages"},
        SpecCase{"ExportOfTheBestWithoutOne",
                 [](v1::JobSpec* spec) { Fit(spec)->clear_keep_best(); }, "export.from",
                 "found best, but no stage fit has keep_best; allowed: last"},
        SpecCase{"ExportOfTheBestDuringTraining",
                 [](v1::JobSpec* spec) { spec->mutable_export_()->set_every_steps(5); },
                 "export.every_steps", "found 5, but with from: best"},
        SpecCase{"TopKOfTokens",
                 [](v1::JobSpec* spec) {
                   Fit(spec)->mutable_keep_best()->set_metric(Metric::TOP_K_ACCURACY);
                 },
                 "stages[0].fit.keep_best.metric",
                 "found top_k_accuracy, which only classifiers with more than 5 classes give; "
                 "allowed: loss, accuracy, perplexity"},
        SpecCase{"TopKOfFewClasses", [](v1::JobSpec* spec) { *spec = Classifier(5); },
                 "stages[0].fit.early_stopping.metric", "allowed: loss, accuracy"},
        SpecCase{"PerplexityOfRows",
                 [](v1::JobSpec* spec) {
                   *spec = Classifier(6);
                   Fit(spec)->mutable_early_stopping()->set_metric(Metric::PERPLEXITY);
                 },
                 "stages[0].fit.early_stopping.metric",
                 "found perplexity, which only models of tokens give"},
        SpecCase{"AccuracyOfNumbers",
                 [](v1::JobSpec* spec) {
                   *spec = Classifier(6);
                   spec->mutable_loss()->mutable_mse();
                   Fit(spec)->mutable_early_stopping()->set_metric(Metric::ACCURACY);
                 },
                 "stages[0].fit.early_stopping.metric",
                 "found accuracy, which the loss mse does not give; allowed: loss"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::jobspec
