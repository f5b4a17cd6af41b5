// A pass over a data set without effect on training: no gradients, no buckets, no randomness, no
// sampler position. Each sample counts exactly once, whatever the world size.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"

namespace muster::train {

struct EvaluationPass {
  const RankData* source;
  const char* data;      // the name of the data set, for errors: "data.test"
  int64_t per_rank;      // the samples that a rank reads at a time, at most
  int64_t step;          // optimizer steps done
  models::Model* model;  // on `device`
  models::ForwardContext* context;
  c10::Device device;
  comm::Communicator* communicator;  // for tensors on the CPU
  // A collective, called between rounds about twice a second: true ends the pass. None: never.
  std::function<absl::StatusOr<bool>()> interrupted = nullptr;
};

// A collective: all ranks call it at the same point and get bitwise the same result; none if the
// pass was interrupted. Leaves the context in evaluation mode. docs/metrics.md says what the
// metrics are. Errors: the communicator's, those of `interrupted`, or the data set's;
// INVALID_ARGUMENT if there is no loss term at all, because every target is ignored.
absl::StatusOr<std::optional<v1::Evaluation>> Evaluate(const EvaluationPass& pass);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATE_H_
