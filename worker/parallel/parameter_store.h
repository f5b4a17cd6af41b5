// Access to the parameters of a model outside of training steps. Every rank has the parameters in
// whole, or each rank has slices.
//
// Life cycle: a part of a Strategy (strategy.h), with the threading, devices and errors of the
// strategy. Gather, Release, BeginPass and EndPass are called between two steps, after
// Strategy::AwaitParameters.
#ifndef MUSTER_WORKER_PARALLEL_PARAMETER_STORE_H_
#define MUSTER_WORKER_PARALLEL_PARAMETER_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "common/sharding/placement.h"

namespace muster::parallel {

// A part of a parameter that this rank updates, or holds (ParameterShards): elements [begin, begin
// + tensor.numel()) of the flattened parameter.
struct Piece {
  size_t parameter = 0;  // index in the list that the strategy was made of
  int64_t begin = 0;
  // A tensor in the parameter's memory. From FinishBackward to the next BeginStep, its grad() is
  // the reduced gradient.
  at::Tensor tensor;
  // The bucket in which the gradient is reduced. 0 if the piece is frozen.
  size_t bucket = 0;
};

// All parameters, trainable and frozen, of a strategy that shards parameters.
struct ParameterShards {
  // The type of each parameter's pieces.
  std::vector<at::ScalarType> types;
  // The pieces that this rank holds between steps. Their grad() must not be used. Their values may
  // be changed before the first forward, between FinishBackward and FinishUpdate, through Gather,
  // and by BeginPass. At other times some values are gathered ahead.
  std::vector<Piece> held;
  // The pieces of each rank, equal on all ranks; each element is on one rank. Offsets are ignored.
  sharding::Placement holders;
};

// The parameters that a rank has in a pass of forwards without backwards (evaluation).
enum class PassMemory {
  // The parameters of each unit around each of its forwards, as in training.
  kUnits,
  // All parameters, from the begin of the pass to its end.
  kWhole,
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // Null if every rank has all parameters. Otherwise Gather, BeginPass and EndPass are collectives,
  // and all ranks call Release. A parameter's tensor then has memory only between Gather and
  // Release, and during forwards of units with this parameter in a context of
  // Strategy::MakeContext.
  virtual const ParameterShards* shards() const = 0;

  // Gives the parameters with these indices their values, until the next call of any method of the
  // store or the strategy except shards() and pieces().
  virtual absl::Status Gather(const std::vector<size_t>& parameters) = 0;
  // Ends Gather. Keeps the values that were written into the parameters since then; they must be
  // the same on all ranks.
  virtual void Release() = 0;

  // Begins and ends a pass of forwards without backwards. After the pass the rank holds as many
  // bytes as before. More only if this pass was the first to gather frozen parameters that then
  // stay in memory (FsdpOptions::frozen_resident).
  // `exchange`: changes the values of the parameters that this rank holds (shards()->held, if there
  // are shards). Called at the begin, and again at the end to change the values back. Null: the
  // pass uses the values as they are.
  // After an error of the pass, EndPass may be left out; the strategy cannot be used any more then.
  virtual absl::Status BeginPass(PassMemory memory, std::function<void()> exchange) = 0;
  virtual absl::Status EndPass() = 0;
  // The bytes of memory that a pass with PassMemory::kWhole needs in addition to the memory in use.
  // Not a collective.
  virtual int64_t BytesOfWholePass() const = 0;
};

// The store of strategies whose ranks have all parameters (ddp, sharded_ddp). There is nothing to
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
