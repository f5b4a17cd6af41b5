// The exponential moving average of each parameter (docs/concepts/ema.md), with the formula of
// PyTorch's AveragedModel with get_ema_multi_avg_fn. The first update copies the parameters; each
// later update moves every average towards its parameter. Before the first update, there are no
// averages and no memory for them.
//
// Each rank holds and updates a part of the averages, without the other ranks:
//   ddp          all averages
//   sharded_ddp  the slices of trained parameters that the rank updates; frozen parameters, which
//                all ranks have whole, are divided evenly
//   fsdp         the slices of all parameters that the rank holds
// A change of the plan moves the averages to the ranks that need them. An average has the type of
// its parameter. The average of an integer parameter is the parameter's value at the last update.
//
// Threading: the session's thread. All ranks make the same calls.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_AVERAGES_H_
#define MUSTER_WORKER_TRAIN_TRAINING_AVERAGES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/placement.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"

namespace muster::train {

// Returns, for each parameter, the ranges of the ranks, in the form for the state of a checkpoint.
std::vector<std::vector<checkpoint::StateBuilder::Part>> PartsOf(
    const sharding::Placement& placement);

class Averages {
 public:
  // The plan in force: the strategy and the parameters that it trains.
  struct Plan {
    const parallel::Strategy* strategy;
    const Mask* trained;
  };

  // types: those of the parameters. The communicator is the strategy's. It must outlive this
  // object. While a method runs, nothing else may use the communicator.
  Averages(const AverageConfig& config, std::vector<models::Parameter> parameters,
           std::vector<at::ScalarType> types, comm::Communicator* communicator)
      : config_(config),
        parameters_(std::move(parameters)),
        types_(std::move(types)),
        communicator_(communicator) {}

  // Returns which rank holds which averages under a plan with these placements. `replicated`: every
  // rank updates all parameters.
  static sharding::Placement PlacementFor(const parallel::Placements& placements, bool replicated);

  // Whether there are averages.
  bool begun() const { return begun_; }
  // Updates the averages if `step` is a multiple of AverageConfig::every. Called after each
  // optimizer step of the job, applied or skipped. The host does not wait.
  void Update(int64_t step, const Plan& plan);

  // Begin makes memory for the averages, which the caller then fills from a checkpoint. Forget
  // drops the averages.
  void Begin(const Plan& plan);
  void Forget();

  // ---- A new plan. LeavePlan forgets where the parameters lie, so that their memory can be freed.
  void LeavePlan();
  // Moves the averages to the ranks that need them in the new plan. A collective. Returns the bytes
  // that all ranks sent.
  absl::StatusOr<int64_t> EnterPlan(const Plan& plan, int64_t step);

  // ---- The averages in place of the parameters. Exchange swaps parameters and averages in the
  // memory that this rank updates. A second call swaps them back. No gather or forward may be
  // running. Needs at most 4 MiB of memory.
  void Exchange();
  // Sends the swapped values to all ranks, if every rank has all parameters but swaps only a part.
  // Called after Exchange. A collective. Otherwise does nothing.
  absl::Status Spread(int64_t step);

  // Adds the averages to the state of a checkpoint, in the slot checkpoint::kAverageSlot.
  void AddTo(checkpoint::StateBuilder* builder) const;

 private:
  struct Held {
    size_t parameter = 0;
    int64_t begin = 0;
    at::Tensor average;
    // The same elements of the parameter; undefined without a plan.
    at::Tensor value;
  };
  // The averages and values of one type, which one call updates.
  struct SameType {
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> values;
  };

  // Sets placement_ and the averages that this rank holds. An average of the same elements keeps
  // its memory; other averages get new memory.
  void Hold(const Plan& plan);
  std::vector<parallel::Piece> Pieces() const;

  const AverageConfig config_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<at::ScalarType> types_;
  comm::Communicator* const communicator_;
  bool begun_ = false;
  bool replicated_ = false;
  bool in_shards_ = false;  // no rank has all parameters
  sharding::Placement placement_;
  std::vector<Held> held_;
  std::map<at::ScalarType, SameType> by_type_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_AVERAGES_H_
