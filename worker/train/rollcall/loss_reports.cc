#include "worker/train/rollcall/loss_reports.h"

#include <google/protobuf/util/time_util.h>

#include <cmath>
#include <utility>

namespace muster::train {

void LossReports::Add(int64_t step, int64_t samples, const models::Model& model) {
  Waiting& added = waiting_.emplace_back();
  v1::StepMetrics& metrics = added.metrics;
  metrics.set_step(step);
  metrics.set_loss(0);
  metrics.set_samples(samples);
  const models::InputSpec input = model.Input();
  if (input.kind == models::InputSpec::Kind::kTokens) metrics.set_tokens(samples * input.context);
  // A backward pass takes twice the operations of its forward pass.
  added.flops = 3 * model.ForwardFlops() * static_cast<double>(samples);
}

LossReports::Waiting* LossReports::Find(int64_t step) {
  for (Waiting& waiting : waiting_) {
    if (static_cast<int64_t>(waiting.metrics.step()) == step) return &waiting;
  }
  return nullptr;
}

void LossReports::SetSeconds(int64_t step, double seconds) {
  Waiting* const waiting = Find(step);
  if (waiting == nullptr) return;
  *waiting->metrics.mutable_duration() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(static_cast<int64_t>(seconds * 1e9));
  if (waiting->flops > 0 && seconds > 0) {
    waiting->metrics.set_model_flops_per_second(waiting->flops / seconds);
    if (peak_flops_ > 0) {
      waiting->metrics.set_model_flops_utilization(waiting->flops / seconds / peak_flops_);
    }
  }
}

void LossReports::Settle(int64_t step, const StepResult& result) {
  Waiting* const waiting = Find(step);
  if (waiting == nullptr) return;
  waiting->metrics.MergeFrom(result.metrics);
  waiting->metrics.set_skipped(result.outcome != StepOutcome::kApplied);
}

std::vector<v1::StepMetrics> LossReports::Complete(const StepLoss& loss,
                                                   const models::Model& model) {
  std::vector<v1::StepMetrics> complete;
  while (!waiting_.empty() && static_cast<int64_t>(waiting_.front().metrics.step()) <= loss.step) {
    v1::StepMetrics& metrics = waiting_.front().metrics;
    if (static_cast<int64_t>(metrics.step()) == loss.step) metrics.set_loss(loss.mean);
    if (model.HasPerplexity()) metrics.set_perplexity(std::exp(metrics.loss()));
    complete.push_back(std::move(metrics));
    waiting_.pop_front();
  }
  return complete;
}

}  // namespace muster::train
