#include "worker/train/job/improvement.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::train {
namespace {

// Returns the name of the metric's field in v1::Evaluation.
const char* NameOf(Metric metric) {
  switch (metric) {
    case Metric::kLoss:
      return "loss";
    case Metric::kAccuracy:
      return "accuracy";
    case Metric::kTopKAccuracy:
      return "top_k_accuracy";
    case Metric::kPerplexity:
      return "perplexity";
  }
  return "";
}

const google::protobuf::FieldDescriptor* FieldOf(Metric metric) {
  return v1::Evaluation::descriptor()->FindFieldByName(NameOf(metric));
}

double ValueOf(const v1::Evaluation& evaluation, Metric metric) {
  return evaluation.GetReflection()->GetDouble(evaluation, FieldOf(metric));
}

bool Improves(double value, const std::optional<double>& best, const Criterion& criterion,
              double min_delta) {
  if (!std::isfinite(value)) return false;
  if (!best.has_value()) return true;
  return criterion.larger_is_better ? value - min_delta > *best : value + min_delta < *best;
}

std::string WhyStopped(const EarlyStopping& rule, const manifest::ValidationRecord::Patience& now) {
  const std::string best = !now.best.has_value() ? "it was never finite"
                                                 : absl::StrCat("the best was ", now.best->second,
                                                                " after step ", now.best->first);
  return absl::StrCat("the validation ", NameOf(rule.criterion.metric), " has not improved",
                      rule.min_delta > 0 ? absl::StrCat(" by more than ", rule.min_delta) : "",
                      " in ", now.passes, now.passes == 1 ? " pass" : " passes",
                      " (patience: ", rule.patience, "); ", best);
}

}  // namespace

GivenMetrics GivenBy(const v1::Evaluation& evaluation) {
  GivenMetrics given = {Metric::kLoss};
  for (const Metric one : {Metric::kAccuracy, Metric::kTopKAccuracy, Metric::kPerplexity}) {
    if (evaluation.GetReflection()->HasField(evaluation, FieldOf(one))) given.insert(one);
  }
  return given;
}

absl::Status CheckMetrics(const PassRules& rules, const GivenMetrics& given, int64_t stage) {
  const auto check = [&](const char* rule, Metric metric) {
    if (given.contains(metric)) return absl::OkStatus();
    std::vector<std::string> allowed;
    for (const Metric one : given) allowed.push_back(NameOf(one));
    return absl::InvalidArgumentError(
        absl::StrCat("stages[", stage, "].fit.", rule, ".metric: found ", NameOf(metric),
                     ", which the validation of this model with this loss does not give; allowed: ",
                     absl::StrJoin(allowed, ", ")));
  };
  absl::Status status;
  if (rules.early_stopping.has_value()) {
    status = check("early_stopping", rules.early_stopping->criterion.metric);
  }
  if (status.ok() && rules.keep_best.has_value()) {
    status = check("keep_best", rules.keep_best->metric);
  }
  return status;
}

Judgement Judge(const PassRules& rules, const Pass& pass, manifest::ValidationRecord record) {
  Judgement result;
  if (rules.keep_best.has_value()) {
    const double value = ValueOf(*pass.evaluation, rules.keep_best->metric);
    std::optional<double> best;
    if (record.best.has_value()) best = record.best->value;
    result.best = Improves(value, best, *rules.keep_best, /*min_delta=*/0);
    if (result.best) {
      record.best = {.step = pass.step, .generation = pass.generation, .value = value};
    }
  }
  if (rules.early_stopping.has_value()) {
    const EarlyStopping& rule = *rules.early_stopping;
    if (!record.patience.has_value() || record.patience->stage != pass.stage) {
      record.patience = {.stage = pass.stage};
    }
    auto& patience = *record.patience;
    const double value = ValueOf(*pass.evaluation, rule.criterion.metric);
    std::optional<double> best;
    if (patience.best.has_value()) best = patience.best->second;
    if (Improves(value, best, rule.criterion, rule.min_delta)) {
      patience.best = {pass.step, value};
      patience.passes = 0;
    } else {
      ++patience.passes;
    }
    if (patience.passes >= rule.patience) result.stop = WhyStopped(rule, patience);
  }
  result.record = std::move(record);
  return result;
}

}  // namespace muster::train
