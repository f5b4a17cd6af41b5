#include <optional>
#include <string>
#include <vector>

#include "common/rpc/proto_time.h"
#include "coordinator/service/wire.h"
#include "coordinator/web/metrics.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::web {
namespace {

using prometheus::MetricType;
using Value = std::optional<double>;

struct Seen {
  const service::ObservedJob& job;
  // The snapshot that `muster get` shows.
  v1::Job told;
  // The newest step in full, if it was measured.
  bool measured = false;
  v1::StepMetrics step;
};

Seen See(const service::ObservedJob& job) {
  Seen out{.job = job};
  service::SetMetrics(&out.told, job.progress, job.newest_steps);
  out.measured =
      !job.progress.newest_step.empty() && out.step.ParseFromString(job.progress.newest_step);
  if (!out.measured) out.step.Clear();
  return out;
}

Value If(bool known, double value) { return known ? Value(value) : std::nullopt; }

// The metrics with one value for each job, which may be absent.
constexpr struct {
  MetricType type;
  const char* name;
  const char* help;
  Value (*value)(const Seen& seen);
} kMetrics[] = {
    {MetricType::Gauge, "muster_job_generation",
     "Number of the job's newest generation: a generation is one set of processes.",
     [](const Seen& seen) -> Value { return seen.job.generation; }},
    {MetricType::Gauge, "muster_job_attempt",
     "Number of the job's attempt: it grows when the job continues after its end (muster resume "
     "or muster retry).",
     [](const Seen& seen) -> Value { return seen.job.attempt; }},
    {MetricType::Counter, "muster_job_restarts_total",
     "Number of times that the job was started again after a failure of its own.",
     [](const Seen& seen) -> Value { return seen.job.restarts; }},
    {MetricType::Gauge, "muster_job_restarts_left",
     "Number of further failures after which the job is started again.",
     [](const Seen& seen) -> Value { return seen.job.restarts_left; }},
    {MetricType::Gauge, "muster_job_operations_pending",
     "Number of operations of the job that are not done.",
     [](const Seen& seen) -> Value { return seen.job.operations_pending; }},
    {MetricType::Gauge, "muster_job_failed_saves",
     "Number of checkpoints in a row that could not be written.",
     [](const Seen& seen) -> Value { return seen.job.failed_saves; }},
    {MetricType::Gauge, "muster_job_world_size", "Number of ranks that the job has.",
     [](const Seen& seen) -> Value { return seen.job.world_size; }},
    {MetricType::Gauge, "muster_job_active_ranks", "Number of ranks that train and have input.",
     [](const Seen& seen) -> Value { return seen.job.active_ranks; }},
    {MetricType::Gauge, "muster_job_joined_ranks",
     "Number of ranks that take part with zero gradients because they have no more input in this "
     "epoch.",
     [](const Seen& seen) -> Value { return seen.job.joined_ranks; }},
    {MetricType::Gauge, "muster_job_step",
     "Number of optimizer steps that the job has done. After a failure it goes back to the step "
     "of the checkpoint.",
     [](const Seen& seen) -> Value { return seen.job.progress.step; }},
    {MetricType::Gauge, "muster_job_planned_steps",
     "Number of optimizer steps of all stages that train; absent while it is not known.",
     [](const Seen& seen) -> Value { return If(seen.job.total_steps > 0, seen.job.total_steps); }},
    {MetricType::Gauge, "muster_job_checkpoint_step",
     "Step of the job's newest checkpoint; absent if it has none.",
     [](const Seen& seen) -> Value { return seen.job.checkpoint_step; }},
    {MetricType::Counter, "muster_job_skipped_steps_total",
     "Number of times that a step updated nothing because a loss or a gradient was not finite.",
     [](const Seen& seen) -> Value { return seen.job.progress.skipped_steps; }},
    {MetricType::Gauge, "muster_job_step_duration_seconds", "Duration of the job's newest step.",
     [](const Seen& seen) -> Value {
       return If(seen.measured, absl::ToDoubleSeconds(FromProto(seen.step.duration())));
     }},
    {MetricType::Gauge, "muster_job_loss",
     "Training loss of the newest step, over all ranks; it may be NaN.",
     [](const Seen& seen) -> Value { return If(seen.told.has_loss(), seen.told.loss()); }},
    {MetricType::Gauge, "muster_job_learning_rate", "Learning rate of the newest step.",
     [](const Seen& seen) -> Value {
       return If(seen.step.has_learning_rate(), seen.step.learning_rate());
     }},
    {MetricType::Gauge, "muster_job_gradient_norm",
     "Norm of all gradients of the newest step, before clipping; absent if it is not computed or "
     "not finite.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_grad_norm(), seen.told.grad_norm());
     }},
    {MetricType::Gauge, "muster_job_perplexity",
     "Perplexity of the newest step; absent unless the loss is a cross entropy over tokens.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_perplexity(), seen.told.perplexity());
     }},
    {MetricType::Gauge, "muster_job_validation_loss", "Loss of the newest validation.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_validation_loss(), seen.told.validation_loss());
     }},
    {MetricType::Gauge, "muster_job_validation_accuracy_ratio",
     "Accuracy of the newest validation, from 0 to 1.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_validation_accuracy(), seen.told.validation_accuracy());
     }},
    {MetricType::Gauge, "muster_job_samples_per_second",
     "Samples of all ranks per second over the last 20 steps; absent while the job does not "
     "train.",
     [](const Seen& seen) -> Value {
       return If(seen.told.samples_per_second() > 0, seen.told.samples_per_second());
     }},
    {MetricType::Gauge, "muster_job_tokens_per_second",
     "Tokens of all ranks per second over the last 20 steps; absent while the job does not train, "
     "and for models that have no tokens.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_tokens_per_second(), seen.told.tokens_per_second());
     }},
    {MetricType::Gauge, "muster_job_model_flops_per_second",
     "Floating-point operations of the model per second, of all ranks, over the last 20 steps; "
     "absent if they are not known.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_model_flops_per_second(), seen.told.model_flops_per_second());
     }},
    {MetricType::Gauge, "muster_job_model_flops_utilization_ratio",
     "Model FLOPs utilization (MFU) over the last 20 steps, from 0 to 1; absent on the CPU and "
     "for GPUs whose peak is not known.",
     [](const Seen& seen) -> Value {
       return If(seen.told.has_model_flops_utilization(), seen.told.model_flops_utilization());
     }},
};

}  // namespace

void AddJobMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out) {
  Metric info =
      out->Gauge("muster_job_info", "Always 1: a job, with the kind of device on which it trains.");
  Metric state = out->Gauge("muster_job_state",
                            "1 for the state in which the job is; other states are absent.");
  std::vector<Seen> all;
  all.reserve(jobs.size());
  for (const service::ObservedJob& job : jobs) {
    info.Set({{"job_id", job.id}, {"device", DeviceName(job.device)}}, 1);
    state.Set({{"job_id", job.id}, {"state", jobs::Name(job.state)}}, 1);
    all.push_back(See(job));
  }
  for (const auto& [type, name, help, value] : kMetrics) {
    Metric metric = out->Add(name, help, type);
    for (const Seen& seen : all) metric.Set({{"job_id", seen.job.id}}, value(seen));
  }
}

}  // namespace muster::web
