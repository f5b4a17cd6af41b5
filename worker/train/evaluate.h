// A pass over a data set without effect on training: no gradients, no buckets, no randomness, no
// sampler position. Each sample counts exactly once, whatever the world size.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/train/rank_data.h"

namespace muster::train {

struct EvaluationResult {
  double loss = 0;  // mean over all loss terms of all samples
  int64_t terms = 0;
  int64_t samples = 0;
  // The fraction of the terms whose target got the largest logit; absent if the model does not
  // report it (LossOutput::correct).
  std::optional<double> accuracy;
};

// A collective: all ranks call it at the same point and get bitwise the same result. Reads at most
// `per_rank` samples at a time. Leaves the context in evaluation mode. Errors: the communicator's
// or the data set's; INVALID_ARGUMENT if there is no loss term at all, because every target is
// ignored.
absl::StatusOr<EvaluationResult> Evaluate(const RankData& source, int64_t per_rank, int64_t step,
                                          models::Model& model, models::ForwardContext& context,
                                          comm::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_H_
