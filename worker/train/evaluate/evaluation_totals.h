// The sums of which the metrics of an evaluation are made, on one rank: added up where the model
// is, so that no batch waits for the device, and then over all ranks. Counts are integers, so that
// they are exact however the samples are distributed.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace muster::train {

// Of classifiers with more classes than this, counts by class are left out: of so many classes they
// would be the largest part of what the coordinator stores.
inline constexpr int64_t kMostCountedClasses = 10000;
// The same for the confusion matrix, which has the square of the number of classes.
inline constexpr int64_t kMostConfusedClasses = 100;
// A classifier with more classes than this also counts the targets among so many largest logits.
inline constexpr int64_t kTopK = 5;

// Whether it is such a classifier, as far as its inputs and its loss tell.
bool CountsTopK(const models::Model& model);

// Threading: one thread.
class EvaluationTotals {
 public:
  // Of this model, which is on `device`. The same on all ranks.
  EvaluationTotals(const models::Model& model, c10::Device device);

  // Adds a batch of `samples` samples.
  void Add(const models::LossOutput& loss, int64_t samples);

  // A collective. The communicator is for tensors on the CPU. `data`: the name of the data set, for
  // errors. INVALID_ARGUMENT, of which IsAgreed is true: there is no loss term at all, because
  // every target is ignored. Other errors: the communicator's.
  absl::StatusOr<v1::Evaluation> Reduce(const char* data, int64_t step,
                                        comm::Communicator& communicator) const;

 private:
  // Counts by class in counts_, in this order: targets, predicted, correct, the confusion matrix.
  void AddClasses(const models::Judged& judged);
  at::Tensor Counts(int64_t from, int64_t size) const { return counts_.narrow(0, from, size); }
  int64_t confusion_size() const {
    return classes_ <= kMostConfusedClasses ? classes_ * classes_ : 0;
  }

  const bool perplexity_;
  const int64_t top_k_;    // 0: not counted
  const int64_t classes_;  // 0: not counted by class
  at::Tensor loss_;        // float64 [1]: the sum over all terms
  at::Tensor right_;       // int64 [2]: correct, in the top k
  at::Tensor counts_;      // int64: by class
  int64_t terms_ = 0;
  int64_t samples_ = 0;
  int64_t with_logits_ = 0;  // terms that `judged` judges
  int64_t told_ = 0;         // terms of which a model's own loss tells how many are right
  int64_t told_correct_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_
