// Whether a validation pass improves on those before it, and what follows from that: the end of a
// fit stage (early_stopping, with the rule of Keras' and PyTorch Lightning's EarlyStopping) and the
// checkpoint that is kept beside the newest ones (keep_best, as ModelCheckpoint with save_top_k=1).
// Pure. docs/concepts/stages.md says it for users.
#ifndef MUSTER_WORKER_TRAIN_JOB_IMPROVEMENT_H_
#define MUSTER_WORKER_TRAIN_JOB_IMPROVEMENT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "common/manifest/validation_record.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::train {

// A number of a validation pass.
enum class Metric { kLoss, kAccuracy, kTopKAccuracy, kPerplexity };

struct Criterion {
  Metric metric = Metric::kLoss;
  bool larger_is_better = false;
};

struct EarlyStopping {
  Criterion criterion;
  int64_t patience = 3;  // at least 1
  double min_delta = 0;  // at least 0
};

// What the validation passes of a fit stage decide.
struct PassRules {
  std::optional<EarlyStopping> early_stopping;
  std::optional<Criterion> keep_best;

  bool any() const { return early_stopping.has_value() || keep_best.has_value(); }
};

// The metrics that validation gives; the loss is always among them.
using GivenMetrics = std::set<Metric>;
GivenMetrics GivenBy(const v1::Evaluation& evaluation);

// INVALID_ARGUMENT if a rule needs a metric that validation does not give. `stage`: the index in
// the job's list, for the message.
absl::Status CheckMetrics(const PassRules& rules, const GivenMetrics& given, int64_t stage);

// A pass of a fit stage.
struct Pass {
  int64_t stage = 0;       // its index in the job's list
  int64_t step = 0;        // optimizer steps done
  int64_t generation = 0;  // that runs it, and would write the checkpoint of this step
  const v1::Evaluation* evaluation;
};

struct Judgement {
  manifest::ValidationRecord record;  // the new one
  // The pass is better than all before: a checkpoint of this step becomes the best one.
  bool best = false;
  // Why the stage ends; empty: it does not.
  std::string stop;
};

// A number counts as an improvement if it is finite and better than the best one before by more
// than min_delta; the first finite one always does. All sums are those of float64:
// value + min_delta < best, or value - min_delta > best. What the record says about another stage's
// patience does not count: each stage begins anew. CheckMetrics has found all metrics of the rules.
Judgement Judge(const PassRules& rules, const Pass& pass, manifest::ValidationRecord record);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_IMPROVEMENT_H_
