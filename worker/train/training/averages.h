// An exponential moving average of each parameter (docs/concepts/ema.md), as PyTorch's
// AveragedModel with get_ema_multi_avg_fn has it: the first update copies the parameters, each
// later one moves every average towards its parameter. Until the first update there are no
// averages, and no memory for them.
//
// Each rank holds a part of the averages, and updates it without the other ranks:
//   ddp          all of them
//   sharded_ddp  the slices of trained parameters that it updates; frozen parameters, which all
//                ranks have whole, are divided evenly
//   fsdp         the slices of all parameters that it holds
// When the plan changes, they move to where the new plan needs them. An average has the type of its
// parameter; that of an integer parameter is its value at the last update.
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
#include "common/layout/placement.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"

namespace muster::train {

// For each parameter, the ranges that ranks hold, as the state of a checkpoint takes them.
std::vector<std::vector<checkpoint::StateBuilder::Part>> PartsOf(
    const layout::Placement& placement);

class Averages {
 public:
  // The plan that is in force: which parameters its strategy trains.
  struct Plan {
    const parallel::Strategy* strategy;
    const Mask* trained;
  };

  // types: of the parameters. The communicator, which is the strategy's, must outlive this object
  // and is used for nothing else while a method runs.
  Averages(const AverageConfig& config, std::vector<models::Parameter> parameters,
           std::vector<at::ScalarType> types, comm::Communicator* communicator)
      : config_(config),
        parameters_(std::move(parameters)),
        types_(std::move(types)),
        communicator_(communicator) {}

  // Which rank holds which averages under a plan with these placements. `replicated`: every rank
  // updates all parameters.
  static layout::Placement PlacementFor(const parallel::Placements& placements, bool replicated);

  // Whether there are averages.
  bool begun() const { return begun_; }
  // Called after each optimizer step, `step` of the job, whether it was applied or skipped. Changes
  // the averages if it is a multiple of AverageConfig::every. The host waits for nothing.
  void Update(int64_t step, const Plan& plan);

  // Makes memory for the averages, which the caller fills from a checkpoint, or (Forget) there are
  // none any more.
  void Begin(const Plan& plan);
  void Forget();

  // ---- A new plan. Forgets where the parameters lie, so that their memory can be freed.
  void LeavePlan();
  // Moves the averages to where the new plan needs them. A collective. Returns the bytes that all
  // ranks sent.
  absl::StatusOr<int64_t> EnterPlan(const Plan& plan, int64_t step);

  // ---- The averages in place of the parameters. Parameters and averages change places in the
  // memory that this rank updates; the second call changes them back. No gather or forward may be
  // under way. Needs 4 MiB of memory at most.
  void Exchange();
  // After Exchange, only where every rank has all parameters: gives them the values of the ranks
  // that have exchanged them. A collective. Does nothing where each rank has exchanged all.
  absl::Status Spread(int64_t step);

  // Adds them to the state of a checkpoint, in the slot checkpoint::kAverageSlot.
  void AddTo(checkpoint::StateBuilder* builder) const;

 private:
  struct Held {
    size_t parameter = 0;
    int64_t begin = 0;
    at::Tensor average;
    at::Tensor value;  // the same elements of the parameter; undefined without a plan
  };
  // By type: what one call updates.
  struct Alike {
    std::vector<at::Tensor> averages;
    std::vector<at::Tensor> values;
  };

  // Sets placement_ and what this rank holds under it. Memory of the same elements is kept, other
  // memory is new.
  void Hold(const Plan& plan);
  std::vector<parallel::Piece> Pieces() const;

  const AverageConfig config_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<at::ScalarType> types_;
  comm::Communicator* const communicator_;
  bool begun_ = false;
  bool replicated_ = false;
  bool in_shards_ = false;  // no rank has all parameters
  layout::Placement placement_;
  std::vector<Held> held_;
  std::map<at::ScalarType, Alike> alike_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_AVERAGES_H_
