#include "coordinator/web/job_metrics.h"

#include <optional>
#include <string>

#include "common/rpc/proto_time.h"
#include "coordinator/jobs/job.h"
#include "coordinator/service/wire.h"
#include "coordinator/web/device.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::web {
namespace {

// What is told of a job by `muster get`, and the newest step in full.
struct Measured {
  v1::Job job;
  std::optional<v1::StepMetrics> step;
};

Measured Measure(const service::ObservedJob& job) {
  Measured out;
  service::SetMetrics(&out.job, job.progress, job.newest_steps);
  v1::StepMetrics step;
  if (!job.progress.newest_step.empty() && step.ParseFromString(job.progress.newest_step)) {
    out.step = std::move(step);
  }
  return out;
}

Labels Of(const service::ObservedJob& job) { return {{"job_id", job.id}}; }

void AddLife(const std::vector<service::ObservedJob>& jobs, Exposition* out) {
  Metric info =
      out->Gauge("muster_job_info", "Always 1: a job, with the kind of device on which it trains.");
  Metric state = out->Gauge("muster_job_state",
                            "1 for the state in which the job is; other states are absent.");
  Metric generation = out->Gauge("muster_job_generation",
                                 "Number of the job's newest generation: a generation is one set "
                                 "of processes.");
  Metric attempt =
      out->Gauge("muster_job_attempt",
                 "Number of the job's attempt: it grows when the job continues after its "
                 "end (muster resume or muster retry).");
  Metric restarts = out->Counter("muster_job_restarts_total",
                                 "Number of times that the job was started again after a failure "
                                 "of its own.");
  Metric left = out->Gauge("muster_job_restarts_left",
                           "Number of further failures after which the job is started again.");
  Metric pending = out->Gauge("muster_job_operations_pending",
                              "Number of operations of the job that are not done.");
  Metric failed_saves = out->Gauge("muster_job_failed_saves",
                                   "Number of checkpoints in a row that could not be written.");
  for (const service::ObservedJob& job : jobs) {
    info.Set({{"job_id", job.id}, {"device", DeviceName(job.device)}}, 1);
    state.Set({{"job_id", job.id}, {"state", jobs::Name(job.state)}}, 1);
    generation.Set(Of(job), static_cast<double>(job.generation));
    attempt.Set(Of(job), job.attempt);
    restarts.Set(Of(job), job.restarts);
    left.Set(Of(job), job.restarts_left);
    pending.Set(Of(job), static_cast<double>(job.operations_pending));
    failed_saves.Set(Of(job), job.failed_saves);
  }
}

void AddSizes(const std::vector<service::ObservedJob>& jobs, Exposition* out) {
  Metric world = out->Gauge("muster_job_world_size", "Number of ranks that the job has.");
  Metric active =
      out->Gauge("muster_job_active_ranks", "Number of ranks that train and have input.");
  Metric joined = out->Gauge("muster_job_joined_ranks",
                             "Number of ranks that take part with zero gradients because they have "
                             "no more input in this epoch.");
  for (const service::ObservedJob& job : jobs) {
    world.Set(Of(job), job.world_size);
    active.Set(Of(job), job.active_ranks);
    joined.Set(Of(job), job.joined_ranks);
  }
}

void AddProgress(const std::vector<service::ObservedJob>& jobs, const std::vector<Measured>& all,
                 Exposition* out) {
  Metric step = out->Gauge("muster_job_step",
                           "Number of optimizer steps that the job has done. After a failure it "
                           "goes back to the step of the checkpoint.");
  Metric planned = out->Gauge("muster_job_planned_steps",
                              "Number of optimizer steps of all stages that train; absent while it "
                              "is not known.");
  Metric checkpoint = out->Gauge("muster_job_checkpoint_step",
                                 "Step of the job's newest checkpoint; absent if it has none.");
  Metric skipped = out->Counter("muster_job_skipped_steps_total",
                                "Number of times that a step updated nothing because a loss or a "
                                "gradient was not finite.");
  Metric duration =
      out->Gauge("muster_job_step_duration_seconds", "Duration of the job's newest step.");
  for (size_t i = 0; i < jobs.size(); ++i) {
    const service::ObservedJob& job = jobs[i];
    step.Set(Of(job), static_cast<double>(job.progress.step));
    if (job.total_steps > 0) planned.Set(Of(job), static_cast<double>(job.total_steps));
    checkpoint.Set(Of(job), job.checkpoint_step);
    skipped.Set(Of(job), static_cast<double>(job.progress.skipped_steps));
    if (all[i].step.has_value()) {
      duration.Set(Of(job), absl::ToDoubleSeconds(FromProto(all[i].step->duration())));
    }
  }
}

void AddMeasured(const std::vector<service::ObservedJob>& jobs, const std::vector<Measured>& all,
                 Exposition* out) {
  Metric loss = out->Gauge("muster_job_loss",
                           "Training loss of the newest step, over all ranks; it may be NaN.");
  Metric rate = out->Gauge("muster_job_learning_rate", "Learning rate of the newest step.");
  Metric norm =
      out->Gauge("muster_job_gradient_norm",
                 "Norm of all gradients of the newest step, before clipping; absent if it "
                 "is not computed or not finite.");
  Metric perplexity = out->Gauge("muster_job_perplexity",
                                 "Perplexity of the newest step; absent unless the loss is a cross "
                                 "entropy over tokens.");
  Metric validation = out->Gauge("muster_job_validation_loss", "Loss of the newest validation.");
  Metric accuracy = out->Gauge("muster_job_validation_accuracy_ratio",
                               "Accuracy of the newest validation, from 0 to 1.");
  for (size_t i = 0; i < jobs.size(); ++i) {
    const v1::Job& told = all[i].job;
    const Labels labels = Of(jobs[i]);
    if (told.has_loss()) loss.Set(labels, told.loss());
    if (all[i].step.has_value() && all[i].step->has_learning_rate()) {
      rate.Set(labels, all[i].step->learning_rate());
    }
    if (told.has_grad_norm()) norm.Set(labels, told.grad_norm());
    if (told.has_perplexity()) perplexity.Set(labels, told.perplexity());
    if (told.has_validation_loss()) validation.Set(labels, told.validation_loss());
    if (told.has_validation_accuracy()) accuracy.Set(labels, told.validation_accuracy());
  }
}

void AddThroughput(const std::vector<service::ObservedJob>& jobs, const std::vector<Measured>& all,
                   Exposition* out) {
  Metric samples =
      out->Gauge("muster_job_samples_per_second",
                 "Samples of all ranks per second over the last 20 steps; absent while "
                 "the job does not train.");
  Metric tokens = out->Gauge("muster_job_tokens_per_second",
                             "Tokens of all ranks per second over the last 20 steps; absent while "
                             "the job does not train, and for models that have no tokens.");
  Metric flops = out->Gauge("muster_job_model_flops_per_second",
                            "Floating-point operations of the model per second, of all ranks, over "
                            "the last 20 steps; absent if they are not known.");
  Metric utilization = out->Gauge("muster_job_model_flops_utilization_ratio",
                                  "Model FLOPs utilization (MFU) over the last 20 steps, from 0 to "
                                  "1; absent on the CPU and for GPUs whose peak is not known.");
  for (size_t i = 0; i < jobs.size(); ++i) {
    const v1::Job& told = all[i].job;
    const Labels labels = Of(jobs[i]);
    if (told.samples_per_second() > 0) samples.Set(labels, told.samples_per_second());
    if (told.has_tokens_per_second()) tokens.Set(labels, told.tokens_per_second());
    if (told.has_model_flops_per_second()) flops.Set(labels, told.model_flops_per_second());
    if (told.has_model_flops_utilization()) {
      utilization.Set(labels, told.model_flops_utilization());
    }
  }
}

}  // namespace

void AddJobMetrics(const std::vector<service::ObservedJob>& jobs, Exposition* out) {
  std::vector<Measured> all;
  all.reserve(jobs.size());
  for (const service::ObservedJob& job : jobs) all.push_back(Measure(job));
  AddLife(jobs, out);
  AddSizes(jobs, out);
  AddProgress(jobs, all, out);
  AddMeasured(jobs, all, out);
  AddThroughput(jobs, all, out);
}

}  // namespace muster::web
