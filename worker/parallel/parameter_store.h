// Where the parameters of a model lie, for code that reads or writes them outside of training
// steps: in whole on every rank, or in slices over all ranks.
//
// Life cycle: a part of a Strategy (strategy.h), with its threading, devices and errors. Gather,
// Release, BeginPass and EndPass are called between two steps, after Strategy::AwaitParameters.
#ifndef MUSTER_WORKER_PARALLEL_PARAMETER_STORE_H_
#define MUSTER_WORKER_PARALLEL_PARAMETER_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "common/layout/placement.h"

namespace muster::parallel {

// What this rank updates, or holds (ParameterShards), of a parameter: elements [begin, begin +
// tensor.numel()) of it, flattened.
struct Piece {
  size_t parameter = 0;  // index in the list that the strategy was made of
  int64_t begin = 0;
  // Shares the parameter's memory; its grad() is the reduced gradient after FinishBackward, until
  // the next BeginStep.
  at::Tensor tensor;
  // The bucket with which its gradient is reduced. 0 if the piece is frozen.
  size_t bucket = 0;
};

// All parameters, trainable and frozen, if no rank holds all of them.
struct ParameterShards {
  // The type of each parameter's pieces.
  std::vector<at::ScalarType> types;
  // The pieces that this rank holds between steps. Their grad() must not be used. Their values may
  // be changed before the first forward, between FinishBackward and FinishUpdate, through Gather,
  // and by BeginPass; at other times some are gathered ahead.
  std::vector<Piece> held;
  // What each rank holds, the same on all ranks: each element is on one rank. Offsets are ignored.
  layout::Placement holders;
};

// What a rank has of the parameters in a pass of forwards without backwards (evaluation).
enum class PassMemory {
  // Each unit's parameters around each of its forwards, as in training.
  kUnits,
  // All parameters, from the begin of the pass to its end.
  kWhole,
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // Null if every rank has all parameters. Otherwise a parameter's tensor has memory only during
  // forwards of units that it belongs to, in a context of Strategy::MakeContext, and between Gather
  // and Release. Then Gather, BeginPass and EndPass are collectives, and all ranks call Release.
  virtual const ParameterShards* shards() const = 0;

  // The parameters with these indices have their values until the next call of any method of the
  // store or the strategy, except shards() and pieces().
  virtual absl::Status Gather(const std::vector<size_t>& parameters) = 0;
  // Ends what Gather began. What was written into the parameters since then is kept; it must be the
  // same on all ranks.
  virtual void Release() = 0;

  // A pass of forwards without backwards. Afterwards the rank holds as many bytes as before.
  // `exchange`: changes the values of the parameters that this rank holds (of shards()->held, if
  // there are shards) for the pass; it is called once more at the end, to change them back. Null:
  // the pass uses the values as they are. After an error of the pass EndPass may be left out; the
  // strategy must not be used any more then.
  virtual absl::Status BeginPass(PassMemory memory, std::function<void()> exchange) = 0;
  virtual absl::Status EndPass() = 0;
  // The memory that a pass with PassMemory::kWhole needs in addition to what is held now, in bytes.
  // Not a collective.
  virtual int64_t BytesOfWholePass() const = 0;
};

// The store of strategies whose ranks have all parameters (ddp, sharded_ddp): there is nothing to
// gather or to free, and no method is a collective.
class ReplicatedParameters : public ParameterStore {
 public:
  const ParameterShards* shards() const override { return nullptr; }
  absl::Status Gather(const std::vector<size_t>&) override { return absl::OkStatus(); }
  void Release() override {}
  absl::Status BeginPass(PassMemory, std::function<void()> exchange) override {
    exchange_ = std::move(exchange);
    if (exchange_ != nullptr) exchange_();
    return absl::OkStatus();
  }
  absl::Status EndPass() override {
    if (exchange_ != nullptr) std::exchange(exchange_, nullptr)();
    return absl::OkStatus();
  }
  int64_t BytesOfWholePass() const override { return 0; }

 private:
  std::function<void()> exchange_;  // only in a pass
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_PARAMETER_STORE_H_
