#include "worker/control/stage_from_spec.h"

#include "absl/status/status.h"
#include "common/jobspec/prompts.h"
#include "common/protoenum/cases.h"
#include "worker/train/job/improvement.h"

namespace muster::control {
namespace {

train::Criterion CriterionOf(v1::ValidationMetric::Metric metric, v1::ValidationMetric::Mode mode) {
  train::Criterion criterion{.larger_is_better = mode == v1::ValidationMetric::MAX};
  switch (metric) {
    case v1::ValidationMetric::ACCURACY:
      criterion.metric = train::Metric::kAccuracy;
      break;
    case v1::ValidationMetric::TOP_K_ACCURACY:
      criterion.metric = train::Metric::kTopKAccuracy;
      break;
    case v1::ValidationMetric::PERPLEXITY:
      criterion.metric = train::Metric::kPerplexity;
      break;
    case v1::ValidationMetric::METRIC_UNSPECIFIED:
    case v1::ValidationMetric::LOSS:
      MUSTER_CASE_NO_VALUE_OF(v1::ValidationMetric_Metric, ValidationMetric_Metric)
      break;
  }
  return criterion;
}

train::PassRules PassRulesOf(const v1::FitStage& fit) {
  train::PassRules rules;
  if (fit.has_early_stopping()) {
    const v1::EarlyStoppingSpec& spec = fit.early_stopping();
    rules.early_stopping = {.criterion = CriterionOf(spec.metric(), spec.mode()),
                            .patience = spec.patience(),
                            .min_delta = spec.min_delta()};
  }
  if (fit.has_keep_best()) {
    rules.keep_best = CriterionOf(fit.keep_best().metric(), fit.keep_best().mode());
  }
  return rules;
}

std::optional<train::FitSample> SampleOf(const v1::FitStage& fit) {
  if (!fit.has_sample()) return std::nullopt;
  train::FitSample sample{.text = fit.sample().text(), .max_tokens = fit.sample().max_tokens()};
  if (fit.sample().has_document()) sample.document = fit.sample().document();
  return sample;
}

train::GenerateConfig Generate(const v1::GenerateSpec& spec) {
  train::GenerateConfig generate{.prompts = jobspec::PromptsOf(spec),
                                 .prompts_from = spec.prompts_from(),
                                 .max_tokens = spec.max_tokens(),
                                 .sampling = {.seed = spec.seed()}};
  if (spec.has_temperature()) generate.sampling.temperature = spec.temperature();
  if (spec.has_top_k()) generate.sampling.top_k = spec.top_k();
  return generate;
}

train::PredictStage Predict(const v1::PredictStage& spec) {
  train::PredictStage stage{.output = spec.output(),
                            .what = spec.what() == v1::PredictStage::CLASSES
                                        ? train::PredictStage::What::kClasses
                                        : train::PredictStage::What::kLogits,
                            .overwrite = spec.overwrite()};
  if (spec.has_generate()) stage.generate = Generate(spec.generate());
  return stage;
}

}  // namespace

absl::StatusOr<train::Stage> StageOf(const v1::StageSpec& spec) {
  switch (spec.kind_case()) {
    case v1::StageSpec::kFit:
      return train::FitStage{.steps = spec.fit().steps(),
                             .validate_every = spec.fit().validate_every(),
                             .epochs = spec.fit().epochs(),
                             .limit_steps = spec.fit().limit_steps(),
                             .passes = PassRulesOf(spec.fit()),
                             .sample = SampleOf(spec.fit())};
    case v1::StageSpec::kValidate:
      return train::ValidateStage{};
    case v1::StageSpec::kTest:
      return train::TestStage{};
    case v1::StageSpec::kPredict:
      return Predict(spec.predict());
    case v1::StageSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("stages: no known alternative is set");
}

}  // namespace muster::control
