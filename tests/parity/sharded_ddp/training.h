// Training as in the session, with the real strategies, optimizers and train::Stepper, and with
// ranks as threads. The whole state after each step is put together from the parts of all ranks.
//
// LibTorch's autocast keeps its casts of weights for the whole process, and drops them when any
// thread's scope ends. With ranks as threads, chance would decide whether a weight that is used
// twice is cast once. So the ranks' threads cast a weight anew at each use. This changes no value,
// and adds the gradients of the uses in float32, not in the lower precision. The tests
// precision_test.py and training_test.py in tests/parity compare training in real processes with
// PyTorch.
#ifndef MUSTER_TESTS_PARITY_SHARDED_DDP_TRAINING_H_
#define MUSTER_TESTS_PARITY_SHARDED_DDP_TRAINING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "tests/parity/sharded_ddp/case.h"
#include "tests/parity/sharded_ddp/workload.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/data/sampler.h"
#include "worker/train/job/job.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/step.h"
#include "worker/train/step/step_result.h"
#include "worker/train/training/setup.h"

namespace muster::parity {

inline constexpr double kAdamWRate = 1e-3;
inline constexpr double kSgdRate = 0.05;
inline constexpr double kLionRate = 1e-3;
inline constexpr double kAdadeltaRate = 1;
// A limit below the norms of most gradients here.
inline constexpr double kMaxNorm = 0.2;

// Returns the job of a case with the strategy `strategy`. In float16 the first step overflows
// because the loss scale is too high, and the scale grows again within six steps.
train::Job JobOf(const Case& one, const train::StrategyConfig& strategy);
// Returns ddp with small buckets: there are several, and some weights lie in the slices of more
// than one rank.
train::StrategyConfig Ddp();
train::StrategyConfig ShardedDdp(ReduceEvery reduce_every, bool reduce_in_bfloat16 = false);

// The whole tensors by name, for example "exp_avg/transformer.wte.weight".
using NamedTensors = std::map<std::string, at::Tensor>;

// A copy of the state that one rank holds.
struct RankState {
  NamedTensors parameters;  // whole; none where ranks hold shards
  NamedTensors others;      // buffers and the loss scaler, whole
  struct Part {
    std::string name;
    bool scalar = false;
    std::vector<int64_t> shape;  // of the whole
    int64_t begin = 0;
    at::Tensor tensor;
  };
  std::vector<Part> shards;     // of the parameters, where no rank holds all of them
  std::vector<Part> optimizer;  // of the strategy's pieces
};

struct State {
  NamedTensors parameters;
  NamedTensors others;
  NamedTensors optimizer;
};

// Puts the states of all ranks together. Fails the running test in these cases:
// - ranks differ in a tensor that all of them hold;
// - an element of a shard is not held by exactly one rank;
// - an element of the optimizer's state is not held by exactly one rank (`sharded`), or not by all
//   ranks with the same value (not `sharded`).
State PutTogether(const std::vector<RankState>& ranks, bool sharded);

// One rank's training. Its thread makes, uses and destroys it.
class RankTraining {
 public:
  // Fails the running test, and makes ok() false, if something cannot be made.
  RankTraining(const train::Job& job, Workload workload, comm::Communicator* communicator);
  bool ok() const { return stepper_.has_value(); }

  // Sets a callback that runs in each step right before the optimizer changes anything. All
  // parameters are there then.
  void OnUpdate(std::function<void()> callback) { on_update_ = std::move(callback); }

  absl::StatusOr<train::StepResult> Step();

  // Copies the state. Parameters may be copied after AwaitParameters, in a callback of OnUpdate, or
  // after a step that was left out.
  RankState Copy(bool with_parameters) const;
  // Takes over `state`. Called after AwaitParameters. Tensors that are not in `state` stay.
  void Become(const State& state);

  parallel::Strategy& strategy() { return *strategy_; }
  checkpoint::State Live() const;
  int64_t steps_done() const { return step_; }
  const data::Position& position() const { return position_; }
  void ContinueFrom(int64_t step, const data::Position& position) {
    step_ = step;
    position_ = position;
  }

 private:
  class ObservedOptimizer;
  absl::Status Build();
  int64_t BeginOf(const std::string& parameter) const;

  const train::Job job_;
  const Workload workload_;
  comm::Communicator* const communicator_;
  const train::FiniteCheck finite_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;
  train::ParameterSlots slots_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;
  std::function<void()> on_update_;
  bool updating_ = false;  // the update of this step has begun
  std::optional<train::Stepper> stepper_;
  int64_t step_ = 0;
  data::Position position_;
};

struct StepRecord {
  std::vector<double> loss_sums;  // by rank
  std::optional<double> grad_norm;
  train::StepOutcome outcome = train::StepOutcome::kApplied;
  State after;
};

// Trains a job from its beginning, and returns its steps. Parameters are read right before the next
// update changes them, so that a forward that does not wait for its parameters is noticed.
// `follow`: each step begins with the state with which the same step of `follow` began.
std::vector<StepRecord> Train(const train::Job& job, const std::function<Workload()>& make,
                              int world_size, int64_t steps,
                              const std::vector<StepRecord>* follow = nullptr);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_SHARDED_DDP_TRAINING_H_
