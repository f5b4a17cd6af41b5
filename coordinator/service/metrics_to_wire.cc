// A job's measurements as clients see them.
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

double Seconds(const v1::StepMetrics& step) {
  return absl::ToDoubleSeconds(FromProto(step.duration()));
}

// Returns the message; absent if the bytes are damaged, which must not be shown as zeros.
std::optional<v1::StepMetrics> Parse(const std::string& metrics) {
  v1::StepMetrics message;
  if (!message.ParseFromString(metrics)) return std::nullopt;
  return message;
}

// Returns the row's message; `what` names the row in an error. Clients tell a pass from a step by
// the fields `validation` and `test`.
enum class Kind { kStep, kValidation, kTest };
absl::StatusOr<v1::StepMetrics> Read(const store::MetricsRow& row, Kind kind,
                                     const std::string& what) {
  std::optional<v1::StepMetrics> message = Parse(row.metrics);
  if (!message.has_value() || message->has_validation() != (kind == Kind::kValidation) ||
      message->has_test() != (kind == Kind::kTest)) {
    return Refuse(absl::StatusCode::kDataLoss, "METRICS_DAMAGED",
                  absl::StrCat("job '", row.job_id, "': the stored metrics of ", what, " ",
                               row.step, " cannot be read: the coordinator's database is damaged"),
                  {{"job", row.job_id}});
  }
  message->set_step(row.step);
  message->set_generation(row.generation);
  return *std::move(message);
}

void SetThroughput(v1::Job* out, const std::deque<std::string>& steps) {
  double samples = 0, tokens = 0, flops = 0, of_peak = 0, seconds = 0;
  bool has_tokens = false, has_flops = false, has_peak = false;
  for (const std::string& metrics : steps) {
    const std::optional<v1::StepMetrics> step = Parse(metrics);
    if (!step.has_value()) continue;
    samples += static_cast<double>(step->samples());
    tokens += static_cast<double>(step->tokens());
    has_tokens |= step->has_tokens();
    flops += step->model_flops_per_second() * Seconds(*step);
    has_flops |= step->has_model_flops_per_second();
    of_peak += step->model_flops_utilization() * Seconds(*step);
    has_peak |= step->has_model_flops_utilization();
    seconds += Seconds(*step);
  }
  if (seconds <= 0) return;
  out->set_samples_per_second(samples / seconds);
  if (has_tokens) out->set_tokens_per_second(tokens / seconds);
  if (has_flops) out->set_model_flops_per_second(flops / seconds);
  if (has_peak) out->set_model_flops_utilization(of_peak / seconds);
}

void SetNewestStep(v1::Job* out, const std::string& metrics) {
  const std::optional<v1::StepMetrics> step = Parse(metrics);
  if (!step.has_value()) {
    out->add_warnings(
        "the metrics of the newest step cannot be read: the coordinator's database is damaged");
    return;
  }
  if (step->has_loss()) out->set_loss(step->loss());
  if (step->has_perplexity()) out->set_perplexity(step->perplexity());
  if (step->has_grad_norm()) out->set_grad_norm(step->grad_norm());
}

// Returns the newest pass; absent if the bytes are damaged, which the job's snapshot says.
std::optional<v1::StepMetrics> NewestPass(v1::Job* out, const std::string& metrics,
                                          const std::string& what) {
  std::optional<v1::StepMetrics> pass = Parse(metrics);
  if (!pass.has_value()) {
    out->add_warnings(absl::StrCat("the metrics of the newest ", what,
                                   " cannot be read: the coordinator's database is damaged"));
  }
  return pass;
}

void SetNewestValidation(v1::Job* out, const std::string& metrics) {
  const auto pass = NewestPass(out, metrics, "validation pass");
  if (!pass.has_value() || !pass->has_validation()) return;  // there is none yet
  const v1::Evaluation& validation = pass->validation();
  out->set_validation_step(pass->step());
  out->set_validation_loss(validation.loss());
  if (validation.has_accuracy()) out->set_validation_accuracy(validation.accuracy());
  if (validation.has_perplexity()) out->set_validation_perplexity(validation.perplexity());
  *out->mutable_validation() = validation;
}

void SetNewestTest(v1::Job* out, const std::string& metrics) {
  const auto pass = NewestPass(out, metrics, "test");
  if (!pass.has_value() || !pass->has_test()) return;
  out->set_test_step(pass->step());
  *out->mutable_test() = pass->test();
}

}  // namespace

absl::StatusOr<v1::StepMetrics> StepToWire(const store::MetricsRow& row) {
  absl::StatusOr<v1::StepMetrics> step = Read(row, Kind::kStep, "step");
  if (!step.ok()) return step;
  if (const double seconds = Seconds(*step); seconds > 0) {
    step->set_samples_per_second(static_cast<double>(step->samples()) / seconds);
    if (step->has_tokens()) {
      step->set_tokens_per_second(static_cast<double>(step->tokens()) / seconds);
    }
  }
  return step;
}

absl::StatusOr<v1::StepMetrics> ValidationToWire(const store::MetricsRow& row) {
  return Read(row, Kind::kValidation, "the validation pass after step");
}

absl::StatusOr<v1::StepMetrics> TestToWire(const store::MetricsRow& row) {
  return Read(row, Kind::kTest, "the test after step");
}

void SetMetrics(v1::Job* out, const jobs::JobProgress& progress,
                const std::deque<std::string>& newest_steps) {
  SetNewestStep(out, progress.newest_step);
  SetNewestValidation(out, progress.newest_validation);
  SetNewestTest(out, progress.newest_test);
  out->set_skipped_steps(progress.skipped_steps);
  SetThroughput(out, newest_steps);
}

}  // namespace muster::service
