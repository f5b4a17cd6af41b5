#include "worker/train/evaluate/evaluation_totals.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/train/ranks/agreement.h"

namespace muster::train {
namespace {

// Returns the number of classes of a model that gives each sample one class; otherwise 0.
int64_t ClassesOf(const models::Model& model) {
  const models::InputSpec input = model.Input();
  const bool classifies = input.kind != models::InputSpec::Kind::kTokens &&
                          input.target_shape.empty() && input.target_numbers == 0;
  return classifies ? input.classes : 0;
}

// The totals in the order in which Reduce sends them.
enum Total { kLoss, kTerms, kSamples, kWithLogits, kTold, kCorrect, kInTop, kTotals };

void Fill(absl::Span<const double> values, google::protobuf::RepeatedField<uint64_t>* out) {
  out->Reserve(static_cast<int>(values.size()));
  for (const double value : values) out->Add(static_cast<uint64_t>(value));
}

}  // namespace

bool CountsTopK(const models::Model& model) { return ClassesOf(model) > kTopK; }

EvaluationTotals::EvaluationTotals(const models::Model& model, c10::Device device)
    : perplexity_(model.HasPerplexity()),
      top_k_(CountsTopK(model) ? kTopK : 0),
      classes_(ClassesOf(model) <= kMostCountedClasses ? ClassesOf(model) : 0) {
  const auto options = at::TensorOptions().device(device);
  loss_ = at::zeros({1}, options.dtype(at::kDouble));
  right_ = at::zeros({2}, options.dtype(at::kLong));
  counts_ = at::zeros({3 * classes_ + confusion_size()}, options.dtype(at::kLong));
}

void EvaluationTotals::Add(const models::LossOutput& loss, int64_t samples) {
  loss_.add_(loss.mean_loss.to(at::kDouble).mul(static_cast<double>(loss.terms)));
  terms_ += loss.terms;
  samples_ += samples;
  if (loss.judged.has_value()) {
    with_logits_ += loss.terms;
    right_[0].add_(loss.judged->Correct());
    if (top_k_ > 0) right_[1].add_(loss.judged->InTop(top_k_).sum());
    if (classes_ > 0) AddClasses(*loss.judged);
  } else if (loss.correct.has_value()) {
    told_ += loss.terms;
    told_correct_ += *loss.correct;
  }
}

void EvaluationTotals::AddClasses(const models::Judged& judged) {
  const at::Tensor targets = judged.Targets();
  const at::Tensor predicted = judged.Predicted();
  const at::Tensor counted = judged.Counted();
  Counts(0, classes_).scatter_add_(0, targets, counted);
  Counts(classes_, classes_).scatter_add_(0, predicted, counted);
  Counts(2 * classes_, classes_).scatter_add_(0, targets, counted.mul(predicted.eq(targets)));
  if (confusion_size() == 0) return;
  Counts(3 * classes_, confusion_size())
      .scatter_add_(0, targets.mul(classes_).add(predicted), counted);
}

absl::StatusOr<v1::Evaluation> EvaluationTotals::Reduce(const char* data, int64_t step,
                                                        comm::Communicator& communicator) const {
  // float64 is exact for counts up to 2^53.
  std::vector<double> mine;
  const auto add = [&mine](const at::Tensor& tensor) {
    const at::Tensor here = device::On(at::kCPU, tensor.to(at::kDouble));
    const auto values = device::HostValues<double>(here);
    mine.insert(mine.end(), values.begin(), values.end());
  };
  add(loss_);
  for (const int64_t count : {terms_, samples_, with_logits_, told_}) {
    mine.push_back(static_cast<double>(count));
  }
  add(right_);
  mine[kCorrect] += static_cast<double>(told_correct_);
  add(counts_);
  const at::Tensor totals = device::HostTensor(mine);
  RETURN_IF_ERROR(
      communicator.AllReduceSum(totals, {.what = "evaluation totals", .step = step})->Wait());
  const auto values = device::HostValues<double>(totals);
  const double terms = values[kTerms];
  if (terms == 0) {
    return MarkAgreed(absl::InvalidArgumentError(
        absl::StrCat(data, ": every target of the ", static_cast<int64_t>(values[kSamples]),
                     " samples is ignored, so there is no loss")));
  }
  v1::Evaluation result;
  result.set_loss(values[kLoss] / terms);
  result.set_samples(static_cast<uint64_t>(values[kSamples]));
  result.set_terms(static_cast<uint64_t>(terms));
  if (perplexity_) result.set_perplexity(std::exp(result.loss()));
  if (values[kWithLogits] + values[kTold] == terms) {
    result.set_accuracy(values[kCorrect] / terms);
  }
  if (values[kWithLogits] != terms) return result;
  if (top_k_ > 0) {
    result.set_top_k(static_cast<uint32_t>(top_k_));
    result.set_top_k_accuracy(values[kInTop] / terms);
  }
  if (classes_ == 0) return result;
  const auto by_class = values.subspan(kTotals);
  v1::ClassCounts& classes = *result.mutable_classes();
  Fill(by_class.subspan(0, classes_), classes.mutable_targets());
  Fill(by_class.subspan(classes_, classes_), classes.mutable_predicted());
  Fill(by_class.subspan(2 * classes_, classes_), classes.mutable_correct());
  Fill(by_class.subspan(3 * classes_), classes.mutable_confusion());
  return result;
}

}  // namespace muster::train
