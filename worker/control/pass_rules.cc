#include "worker/control/pass_rules.h"

#include "common/protoenum/cases.h"

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

}  // namespace

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

}  // namespace muster::control
