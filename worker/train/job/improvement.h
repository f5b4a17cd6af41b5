// Whether a validation pass improves on earlier passes, and the consequences:
// - early_stopping: the end of a fit stage, with the rule of EarlyStopping in Keras and PyTorch
//   Lightning;
// - keep_best: the kept best checkpoint, like ModelCheckpoint with save_top_k=1.
//
// Pure. docs/concepts/stages.md describes both for users.
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

// A metric of a validation pass.
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

// The rules that decide after each validation pass of a fit stage.
struct PassRules {
  std::optional<EarlyStopping> early_stopping;
  std::optional<Criterion> keep_best;

  bool any() const { return early_stopping.has_value() || keep_best.has_value(); }
};

// The metrics that a validation gives. The loss is always among them.
using GivenMetrics = std::set<Metric>;
GivenMetrics GivenBy(const v1::Evaluation& evaluation);

// INVALID_ARGUMENT if a rule needs a metric that validation does not give. `stage`: the index in
// the job's list, for the message.
absl::Status CheckMetrics(const PassRules& rules, const GivenMetrics& given, int64_t stage);

// A validation pass in a fit stage.
struct Pass {
  int64_t stage = 0;       // the index of the stage in the job's list
  int64_t step = 0;        // optimizer steps done
  int64_t generation = 0;  // the generation that runs the pass and would write the checkpoint
  const v1::Evaluation* evaluation;
};

struct Judgement {
  manifest::ValidationRecord record;  // with this pass added
  // The pass is better than all earlier passes: its checkpoint becomes the best checkpoint.
  bool best = false;
  // The reason why the stage ends; empty: the stage continues.
  std::string stop;
};

// Judges a pass and returns the new record. CheckMetrics has accepted the rules. An improvement is
// a finite number that is better than the best earlier number by more than min_delta. The first
// finite number is always an improvement. The comparison is in float64: value + min_delta < best,
// or value - min_delta > best. Each stage begins with a new patience: the patience of another stage
// does not count.
Judgement Judge(const PassRules& rules, const Pass& pass, manifest::ValidationRecord record);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_IMPROVEMENT_H_
