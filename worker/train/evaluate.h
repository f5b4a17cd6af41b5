// A pass over a data set without effect on training: no gradients, no buckets, no randomness, no
// sampler position. Each sample counts exactly once, whatever the world size.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/train/rank_data.h"

namespace muster::train {

// A collective: all ranks call it at the same point and get bitwise the same result. Reads at most
// `per_rank` samples at a time, for the model on `device`. The communicator is for tensors on the
// CPU. Leaves the context in evaluation mode. The loss is the mean over
// all loss terms of all samples. The accuracy is the fraction of the terms whose target got the
// largest logit; it is absent if the model does not report it (LossOutput::correct). Errors: the
// communicator's or the data set's; INVALID_ARGUMENT if there is no loss term at all, because every
// target is ignored.
absl::StatusOr<v1::Validation> Evaluate(const RankData& source, int64_t per_rank, int64_t step,
                                        models::Model& model, models::ForwardContext& context,
                                        c10::Device device, comm::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_H_
