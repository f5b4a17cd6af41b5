#include "worker/train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/memory_scope.h"
#include "worker/train/numbered.h"
#include "worker/train/read_ahead.h"

namespace muster::train {

absl::StatusOr<v1::Evaluation> Evaluate(const EvaluationPass& pass) {
  models::Model& model = *pass.model;
  models::ForwardContext& context = *pass.context;
  comm::Communicator& communicator = *pass.communicator;
  const c10::AutoGradMode no_gradients(false);
  context.set_mode(models::Mode::kEvaluate);
  const data::EvaluationPlan plan =
      pass.source->Evaluation(communicator.world_size(), pass.per_rank);
  ReadAhead reader(pass.source->dataset.get(), pass.device);
  double loss_sum = 0;
  int64_t terms = 0;
  int64_t samples = 0;
  int64_t correct = 0;
  int64_t judged = 0;  // terms for which the model says whether they are correct
  for (int64_t round = 0; round < plan.rounds(); ++round) {
    const auto indices = plan.Samples(communicator.rank(), round);
    const bool idle = indices.empty();
    if (idle && !context.collective()) continue;
    const memory::MemoryScope scope(memory::Purpose::kActivations);
    data::Batch batch;
    if (idle) {  // only for the collectives of the other ranks
      batch = reader.Blank(1);
    } else {
      auto read = reader.Read(indices);
      if (!read.ok()) {
        return Annotate(read.status(), absl::StrCat("rank ", communicator.rank(), ", ",
                                                    SamplesOf(pass.data, indices)));
      }
      batch = *std::move(read);
      if (round + 1 < plan.rounds()) reader.Begin(plan.Samples(communicator.rank(), round + 1));
    }
    const models::LossOutput loss = model.Loss(batch, context);
    activity::Moved();
    if (idle) continue;
    loss_sum += loss.mean_loss.item<double>() * static_cast<double>(loss.terms);
    terms += loss.terms;
    if (loss.correct.has_value()) {
      correct += *loss.correct;
      judged += loss.terms;
    }
    samples += static_cast<int64_t>(indices.size());
  }
  // float64 holds counts exactly up to 2^53.
  const at::Tensor totals = device::HostTensor(
      std::array<double, 5>{loss_sum, static_cast<double>(terms), static_cast<double>(samples),
                            static_cast<double>(correct), static_cast<double>(judged)});
  RETURN_IF_ERROR(
      communicator.AllReduceSum(totals, {.what = "evaluation totals", .step = pass.step})->Wait());
  const auto values = device::HostValues<double>(totals);
  if (values[1] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(pass.data, ": every target of the ", static_cast<int64_t>(values[2]),
                     " samples is ignored (loss.cross_entropy.ignore_index), so there is no loss"));
  }
  v1::Evaluation result;
  result.set_loss(values[0] / values[1]);
  result.set_samples(static_cast<uint64_t>(values[2]));
  result.set_terms(static_cast<uint64_t>(values[1]));
  if (values[4] == values[1]) result.set_accuracy(values[3] / values[1]);
  if (model.HasPerplexity()) result.set_perplexity(std::exp(result.loss()));
  return result;
}

}  // namespace muster::train
