#include "worker/tensorboard/scalars.h"

#include <string>

#include "absl/time/time.h"

namespace muster::tensorboard {
namespace {

// Adds entries of one step.
class Adder {
 public:
  Adder(int64_t step, double wall_time) : step_(step), wall_time_(wall_time) {}

  void Add(const std::string& tag, double value) {
    entries_.push_back({.step = step_, .wall_time = wall_time_, .tag = tag, .value = value});
  }
  void AddIf(bool there, const std::string& tag, double value) {
    if (there) Add(tag, value);
  }
  std::vector<Entry> Take() { return std::move(entries_); }

 private:
  const int64_t step_;
  const double wall_time_;
  std::vector<Entry> entries_;
};

void AddPass(const v1::Evaluation& pass, const std::string& stage, Adder* adder) {
  adder->Add(stage + "/loss", pass.loss());
  adder->AddIf(pass.has_accuracy(), stage + "/accuracy", pass.accuracy());
  adder->AddIf(pass.has_top_k_accuracy(), stage + "/top_k_accuracy", pass.top_k_accuracy());
  adder->AddIf(pass.has_perplexity(), stage + "/perplexity", pass.perplexity());
  adder->Add(stage + "/samples", static_cast<double>(pass.samples()));
}

double SecondsOf(const v1::StepMetrics& metrics) {
  return absl::ToDoubleSeconds(absl::Seconds(metrics.duration().seconds()) +
                               absl::Nanoseconds(metrics.duration().nanos()));
}

}  // namespace

std::vector<Entry> ScalarsOf(const v1::StepMetrics& metrics, double wall_time) {
  Adder adder(static_cast<int64_t>(metrics.step()), wall_time);
  if (metrics.has_validation()) {
    AddPass(metrics.validation(), "validation", &adder);
    return adder.Take();
  }
  if (metrics.has_test()) {
    AddPass(metrics.test(), "test", &adder);
    return adder.Take();
  }
  adder.AddIf(metrics.has_loss(), "train/loss", metrics.loss());
  adder.AddIf(metrics.has_perplexity(), "train/perplexity", metrics.perplexity());
  adder.AddIf(metrics.has_learning_rate(), "train/learning_rate", metrics.learning_rate());
  adder.AddIf(metrics.has_grad_norm(), "train/grad_norm", metrics.grad_norm());
  adder.AddIf(metrics.has_loss_scale(), "train/loss_scale", metrics.loss_scale());
  adder.AddIf(metrics.skipped(), "train/skipped", 1);
  adder.Add("speed/samples", static_cast<double>(metrics.samples()));
  adder.AddIf(metrics.has_model_flops_per_second(), "speed/model_flops_per_second",
              metrics.model_flops_per_second());
  adder.AddIf(metrics.has_model_flops_utilization(), "speed/model_flops_utilization",
              metrics.model_flops_utilization());
  const double seconds = SecondsOf(metrics);
  if (seconds <= 0) return adder.Take();
  adder.Add("speed/seconds", seconds);
  adder.Add("speed/samples_per_second", static_cast<double>(metrics.samples()) / seconds);
  adder.AddIf(metrics.has_tokens(), "speed/tokens_per_second",
              static_cast<double>(metrics.tokens()) / seconds);
  return adder.Take();
}

}  // namespace muster::tensorboard
