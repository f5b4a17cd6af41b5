// What a step does with the reduced gradients: removes the loss scale, divides by the number of
// loss terms, finds whether the gradients and buffers are finite, clips, and updates the
// parameters.
//
// Where the gradients are on the CPU, the host takes the decisions. On another device the same
// decisions are tensors there, and the host does not wait for them: it reads them later.
#ifndef MUSTER_WORKER_TRAIN_STEP_UPDATE_H_
#define MUSTER_WORKER_TRAIN_STEP_UPDATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/job/job.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/step_result.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// Whether each bucket is updated as soon as it is reduced, before the update. This needs a
// gradient that nothing changes after the reduction, and a step that is not left out.
bool UpdatesEarly(const Job& job);

struct UpdateResult {
  StepOutcome outcome = StepOutcome::kApplied;
  // Of the gradients before clipping, if it was computed and is finite.
  std::optional<float> norm = std::nullopt;
  // The loss scale of this step; only with float16.
  std::optional<float> loss_scale = std::nullopt;
  // The parameters of this rank's pieces that no rank used, by their indices in the model, rising.
  // They were left as they are.
  std::vector<size_t> unused = {};
};

// An update that was given to the device.
struct PendingUpdate {
  // The numbers on the device that the result follows from; none on the CPU.
  std::vector<at::Tensor> numbers;
  // The result, from the values of `numbers`. OUT_OF_RANGE, the same on all ranks: a buffer is not
  // finite and on_nan does not skip such steps.
  std::function<absl::StatusOr<UpdateResult>(absl::Span<const double>)> result;
};

// What a step uses.
struct StepParts {
  const Job* job;
  int64_t rank;
  models::Model* model;
  models::ForwardContext* context;
  comm::Communicator* control;  // only with DivideBy::kSamples: one operation in each step
  parallel::Communicators communicators;  // the strategy's
  const data::Dataset* dataset;
  data::Sampler* sampler;
  parallel::Strategy* strategy;
  optim::Optimizer* optimizer;
  optim::LossScaler* scaler;            // null unless Precision::kFloat16
  const FiniteCheck* finite;            // of the model
  trace::Recorder* recorder = nullptr;  // null: nothing is recorded
  // Which of the model's parameters are trained; null: changes of model code during a step are
  // not detected.
  const TrainedParameters* trained = nullptr;
  c10::Device device = c10::kCPU;  // of the model
};

struct UpdateStep {
  int64_t number = 0;
  double learning_rate = 0;
  // What the gradients are still to be divided by, above 0.
  double divisor = 1;
};

// Called after Strategy::FinishBackward. The outcome is the same on all ranks: the ranks exchange
// the sums of their pieces, and the buffers with which all continue are bitwise equal. Errors: the
// communicator's; the optimizer's; on the CPU also those of PendingUpdate::result.
absl::StatusOr<PendingUpdate> UpdateOnHost(const StepParts& parts, const UpdateStep& step);
absl::StatusOr<PendingUpdate> UpdateOnDevice(const StepParts& parts, const UpdateStep& step);

// ---- What both have in common.

// Whether all gradients are checked in every step, and their norm is known.
bool ChecksAllGradients(const Job& job);

// Whether the loss scale follows the gradients. If nothing is trained, no gradient shows whether it
// fits.
bool AdjustsLossScale(const StepParts& parts);

// The outcome of a step with a gradient or a buffer that is not finite.
StepOutcome OutcomeOfNonFinite(const Job& job);

// The gradients that are checked, or that something is done with: those of all pieces if `all`.
// Otherwise only one: a value that is not finite in a forward or backward pass reaches every
// parameter of a usual model that it uses, and checking all gradients would take long. It is the
// smallest piece; of equally small ones the last, which is nearest to the loss. `unused`: as
// Strategy::unused. On the CPU a piece that no rank used is not chosen; on other devices only the
// device knows.
std::vector<at::Tensor> GradientsOf(const std::vector<parallel::Piece>& pieces,
                                    const std::vector<at::Tensor>& unused, bool all);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_UPDATE_H_
