// The work of a step on the reduced gradients:
// - removes the loss scale and divides by the number of loss terms;
// - finds whether the gradients and buffers are finite;
// - clips, and updates the parameters.
//
// With gradients on the CPU, the host takes the decisions. On another device the decisions are
// tensors on the device. The host does not wait for them and reads them later.
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

// Whether each bucket is updated right after its reduction. Needs gradients that do not change
// after the reduction, and steps that are never skipped.
bool UpdatesEarly(const Job& job);

struct UpdateResult {
  StepOutcome outcome = StepOutcome::kApplied;
  // The norm of the gradients before clipping, if it was computed and is finite.
  std::optional<float> norm = std::nullopt;
  // The loss scale of this step; only with float16.
  std::optional<float> loss_scale = std::nullopt;
  // The parameters of this rank's pieces that no rank used, as increasing indices in the model.
  // They were not updated.
  std::vector<size_t> unused = {};
};

// An update that the device may still compute.
struct PendingUpdate {
  // The numbers on the device from which the result follows; empty on the CPU.
  std::vector<at::Tensor> numbers;
  // Returns the result for the values of `numbers`. OUT_OF_RANGE, the same on all ranks: a buffer
  // is not finite, and on_nan does not skip such steps.
  std::function<absl::StatusOr<UpdateResult>(absl::Span<const double>)> result;
};

// The objects that a step uses.
struct StepDependencies {
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
  const FiniteCheck* finite;            // the model's
  trace::Recorder* recorder = nullptr;  // null: nothing is recorded
  // The trained parameters; null: changes of model code during a step are not detected.
  const TrainedParameters* trained = nullptr;
  c10::Device device = c10::kCPU;  // the model's device
};

struct UpdateStep {
  int64_t number = 0;
  double learning_rate = 0;
  // The remaining divisor of the gradients, above 0.
  double divisor = 1;
};

// Update the parameters after Strategy::FinishBackward. The outcome is the same on all ranks: the
// ranks exchange the sums of their pieces, and all ranks have bitwise equal buffers. Errors: the
// communicator's; the optimizer's; on the CPU also those of PendingUpdate::result.
absl::StatusOr<PendingUpdate> UpdateOnHost(const StepDependencies& deps, const UpdateStep& step);
absl::StatusOr<PendingUpdate> UpdateOnDevice(const StepDependencies& deps, const UpdateStep& step);

// ---- Used by UpdateOnHost and UpdateOnDevice.

// Whether all gradients are checked in every step, so that their norm is known.
bool ChecksAllGradients(const Job& job);

// Whether the loss scale follows the gradients. False if nothing is trained, because then no
// gradient shows whether the scale fits.
bool AdjustsLossScale(const StepDependencies& deps);

// Returns the outcome of a step with a gradient or a buffer that is not finite.
StepOutcome OutcomeOfNonFinite(const Job& job);

// Returns the gradients to check or to change: of all pieces if `all`, otherwise of one piece. One
// gradient is enough for a usual model, and faster: a value that is not finite reaches every
// parameter in use. The chosen piece is the smallest; of several smallest pieces the last, which is
// nearest to the loss. `unused`: Strategy::unused. On the CPU, a piece that no rank used is not
// chosen. On other devices only the device knows the unused pieces.
std::vector<at::Tensor> GradientsOf(const std::vector<parallel::Piece>& pieces,
                                    const std::vector<at::Tensor>& unused, bool all);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_UPDATE_H_
