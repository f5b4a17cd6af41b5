#include "worker/train/loss_reports.h"

#include <cmath>
#include <optional>

namespace muster::train {
namespace {

std::optional<int64_t> TokensOf(const models::Model& model, int64_t samples) {
  const models::InputSpec input = model.Input();
  if (input.kind != models::InputSpec::Kind::kTokens) return std::nullopt;
  return samples * input.context;
}

// Of a step over so many samples: a backward takes twice what its forward does.
std::optional<double> ModelFlopsOf(const models::Model& model, int64_t samples) {
  const double forward = model.ForwardFlops();
  if (forward <= 0) return std::nullopt;
  return 3 * forward * static_cast<double>(samples);
}

}  // namespace

void LossReports::Add(int64_t step, const StepResult& result, int64_t samples,
                      const models::Model& model) {
  waiting_.push_back({.step = step,
                      .learning_rate = result.learning_rate,
                      .grad_norm = result.grad_norm,
                      .samples = samples,
                      .skipped = result.outcome != Outcome::kApplied,
                      .loss_scale = result.loss_scale,
                      .tokens = TokensOf(model, samples),
                      .model_flops = ModelFlopsOf(model, samples)});
}

std::vector<StepFinished> LossReports::Complete(const StepLoss& loss, const models::Model& model) {
  std::vector<StepFinished> complete;
  while (!waiting_.empty() && waiting_.front().step <= loss.step) {
    StepFinished& finished = waiting_.front();
    if (finished.step == loss.step) finished.loss = loss.mean;
    if (model.HasPerplexity()) finished.perplexity = std::exp(finished.loss);
    complete.push_back(finished);
    waiting_.pop_front();
  }
  return complete;
}

}  // namespace muster::train
