#include "worker/tensorboard/scalars.h"

#include <string>

#include "absl/time/time.h"
#include "worker/tensorboard/event.h"

namespace muster::tensorboard {
namespace {

void AddIf(bool there, const std::string& tag, double number, Event* event) {
  if (there) AddNumber(tag, number, event);
}

void AddPass(const v1::Evaluation& pass, const std::string& stage, Event* event) {
  AddNumber(stage + "/loss", pass.loss(), event);
  AddIf(pass.has_accuracy(), stage + "/accuracy", pass.accuracy(), event);
  AddIf(pass.has_top_k_accuracy(), stage + "/top_k_accuracy", pass.top_k_accuracy(), event);
  AddIf(pass.has_perplexity(), stage + "/perplexity", pass.perplexity(), event);
  AddNumber(stage + "/samples", static_cast<double>(pass.samples()), event);
}

double SecondsOf(const v1::StepMetrics& metrics) {
  return absl::ToDoubleSeconds(absl::Seconds(metrics.duration().seconds()) +
                               absl::Nanoseconds(metrics.duration().nanos()));
}

}  // namespace

Event ScalarsOf(const v1::StepMetrics& metrics, double wall_time) {
  Event event = EventAt(static_cast<int64_t>(metrics.step()), wall_time);
  if (metrics.has_validation()) {
    AddPass(metrics.validation(), "validation", &event);
    return event;
  }
  if (metrics.has_test()) {
    AddPass(metrics.test(), "test", &event);
    return event;
  }
  AddIf(metrics.has_loss(), "train/loss", metrics.loss(), &event);
  AddIf(metrics.has_perplexity(), "train/perplexity", metrics.perplexity(), &event);
  AddIf(metrics.has_learning_rate(), "train/learning_rate", metrics.learning_rate(), &event);
  AddIf(metrics.has_grad_norm(), "train/grad_norm", metrics.grad_norm(), &event);
  AddIf(metrics.has_loss_scale(), "train/loss_scale", metrics.loss_scale(), &event);
  AddIf(metrics.skipped(), "train/skipped", 1, &event);
  AddNumber("speed/samples", static_cast<double>(metrics.samples()), &event);
  AddIf(metrics.has_model_flops_per_second(), "speed/model_flops_per_second",
        metrics.model_flops_per_second(), &event);
  AddIf(metrics.has_model_flops_utilization(), "speed/model_flops_utilization",
        metrics.model_flops_utilization(), &event);
  const double seconds = SecondsOf(metrics);
  if (seconds <= 0) return event;
  AddNumber("speed/seconds", seconds, &event);
  AddNumber("speed/samples_per_second", static_cast<double>(metrics.samples()) / seconds, &event);
  AddIf(metrics.has_tokens(), "speed/tokens_per_second",
        static_cast<double>(metrics.tokens()) / seconds, &event);
  return event;
}

}  // namespace muster::tensorboard
