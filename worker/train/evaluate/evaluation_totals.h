// The sums from which the metrics of an evaluation follow. A rank adds up its batches on the
// model's device, so that no batch waits for the device. Then all ranks add up their sums. Counts
// are integers, so they are exact for every distribution of the samples.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace muster::train {

// The most classes for counts by class. With more classes, these counts would be the largest part
// of the coordinator's data.
inline constexpr int64_t kMostCountedClasses = 10000;
// The most classes for the confusion matrix, whose size is the square of the number of classes.
inline constexpr int64_t kMostConfusedClasses = 100;
// The k of top-k accuracy, which only classifiers with more than k classes have.
inline constexpr int64_t kTopK = 5;

// Whether the model is a classifier with more than kTopK classes, by its inputs and loss.
bool CountsTopK(const models::Model& model);

// Threading: one thread.
class EvaluationTotals {
 public:
  // The model is on `device`. All ranks pass the same model.
  EvaluationTotals(const models::Model& model, c10::Device device);

  // Adds a batch of `samples` samples.
  void Add(const models::LossOutput& loss, int64_t samples);

  // Returns the metrics over all ranks. A collective. The communicator is for tensors on the CPU.
  // `data`: the name of the data set, for errors. INVALID_ARGUMENT if every target is ignored, so
  // that there is no loss term; IsAgreed is true of this error. Other errors: the communicator's.
  absl::StatusOr<v1::Evaluation> Reduce(const char* data, int64_t step,
                                        comm::Communicator& communicator) const;

 private:
  // Adds to counts_ by class, in this order: targets, predicted, correct, the confusion matrix.
  void AddClasses(const models::Judged& judged);
  at::Tensor Counts(int64_t from, int64_t size) const { return counts_.narrow(0, from, size); }
  int64_t confusion_size() const {
    return classes_ <= kMostConfusedClasses ? classes_ * classes_ : 0;
  }

  const bool perplexity_;
  const int64_t top_k_;    // 0: not counted
  const int64_t classes_;  // 0: not counted by class
  at::Tensor loss_;        // float64 [1]: sum over all terms
  at::Tensor right_;       // int64 [2]: the correct terms, and those in the top k
  at::Tensor counts_;      // int64: by class
  int64_t terms_ = 0;
  int64_t samples_ = 0;
  int64_t with_logits_ = 0;  // terms with `judged`
  int64_t told_ = 0;         // terms with `correct` instead of `judged`
  int64_t told_correct_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATION_TOTALS_H_
