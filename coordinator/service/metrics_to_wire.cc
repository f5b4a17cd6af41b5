// What was measured of a job, as clients see it.
#include <algorithm>

#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

double Seconds(const v1::StepMetrics& step) {
  return static_cast<double>(step.duration().seconds()) + 1e-9 * step.duration().nanos();
}

v1::StepMetrics Parse(const std::string& metrics) {
  v1::StepMetrics message;
  message.ParseFromString(metrics);
  return message;
}

void SetThroughput(v1::Job* out, const std::deque<std::string>& steps) {
  double samples = 0, tokens = 0, flops = 0, seconds = 0;
  bool has_tokens = false, has_flops = false;
  for (const std::string& metrics : steps) {
    const v1::StepMetrics step = Parse(metrics);
    samples += static_cast<double>(step.samples());
    tokens += static_cast<double>(step.tokens());
    has_tokens |= step.has_tokens();
    flops += step.model_flops_per_second() * Seconds(step);
    has_flops |= step.has_model_flops_per_second();
    seconds += Seconds(step);
  }
  if (seconds <= 0) return;
  out->set_samples_per_second(samples / seconds);
  if (has_tokens) out->set_tokens_per_second(tokens / seconds);
  if (has_flops) out->set_model_flops_per_second(flops / seconds);
}

}  // namespace

v1::StepMetrics ToWire(const store::MetricsRow& row) {
  v1::StepMetrics message = Parse(row.metrics);
  message.set_step(row.step);
  message.set_generation(row.generation);
  if (const double seconds = Seconds(message); seconds > 0) {
    message.set_samples_per_second(static_cast<double>(message.samples()) / seconds);
    if (message.has_tokens()) {
      message.set_tokens_per_second(static_cast<double>(message.tokens()) / seconds);
    }
  }
  return message;
}

void SetMetrics(v1::Job* out, const jobs::Job& job, const cluster::Cluster& cluster) {
  const v1::StepMetrics step = Parse(job.newest_step);
  if (step.has_loss()) out->set_loss(step.loss());
  if (step.has_perplexity()) out->set_perplexity(step.perplexity());
  if (step.has_grad_norm()) out->set_grad_norm(step.grad_norm());
  out->set_skipped_steps(job.skipped_steps);
  const v1::StepMetrics pass = Parse(job.newest_validation);
  if (pass.has_validation()) {
    const v1::Validation& validation = pass.validation();
    out->set_validation_step(pass.step());
    out->set_validation_loss(validation.loss());
    if (validation.has_accuracy()) out->set_validation_accuracy(validation.accuracy());
    if (validation.has_perplexity()) out->set_validation_perplexity(validation.perplexity());
  }
  SetThroughput(out, cluster.NewestSteps(job.id));
}

}  // namespace muster::service
