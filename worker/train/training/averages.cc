#include "worker/train/training/averages.h"

#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "worker/device/memory.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/move_pieces.h"

namespace muster::train {
namespace {

using parallel::Piece;
using sharding::Placement;
using sharding::Range;

// The bytes that Exchange copies at a time.
constexpr int64_t kExchangeBytes = 4 << 20;

// Exchanges the values of two tensors of the same type and size.
void ExchangeValues(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = static_cast<int64_t>(a.nbytes());
  if (bytes == 0) return;
  const at::Tensor room =
      at::empty({std::min(bytes, kExchangeBytes)}, a.options().dtype(at::kByte));
  for (int64_t begin = 0; begin < bytes; begin += kExchangeBytes) {
    const int64_t part = std::min(kExchangeBytes, bytes - begin);
    device::CopyBytes(room, 0, a, begin, part);
    device::CopyBytes(a, begin, b, begin, part);
    device::CopyBytes(b, begin, room, 0, part);
  }
}

}  // namespace

std::vector<std::vector<checkpoint::StateBuilder::Part>> PartsOf(
    const sharding::Placement& placement) {
  std::vector<std::vector<checkpoint::StateBuilder::Part>> parts(placement.elements.size());
  for (size_t rank = 0; rank < placement.holders.size(); ++rank) {
    for (const sharding::Range& range : placement.holders[rank]) {
      parts[range.parameter].push_back({static_cast<int>(rank), range.begin, range.end});
    }
  }
  return parts;
}

Placement Averages::PlacementFor(const parallel::Placements& placements, bool replicated) {
  if (placements.holders.has_value()) return *placements.holders;
  const std::vector<int64_t>& elements = placements.owners.elements;
  const auto ranks = static_cast<int>(placements.owners.holders.size());
  if (replicated) return sharding::Replicated(elements, ranks);
  std::vector<int64_t> frozen = elements;
  for (const auto& ranges : placements.owners.holders) {
    for (const Range& range : ranges) frozen[range.parameter] = 0;
  }
  Placement placement = sharding::CutEvenly(frozen, ranks, layout::kAlignment);
  placement.elements = elements;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& owned = placements.owners.holders[rank];
    placement.holders[rank].insert(placement.holders[rank].end(), owned.begin(), owned.end());
  }
  return placement;
}

void Averages::Hold(const Plan& plan) {
  const parallel::Strategy& strategy = *plan.strategy;
  replicated_ = !strategy.plan().sharded;
  in_shards_ = strategy.store().shards() != nullptr;
  placement_ = PlacementFor(strategy.PlacementsFor(*plan.trained), replicated_);
  std::map<std::tuple<size_t, int64_t, int64_t>, at::Tensor> before;
  for (Held& held : held_) {
    const int64_t elements = held.average.numel();
    before[{held.parameter, held.begin, elements}] = std::move(held.average);
  }
  held_.clear();
  by_type_.clear();
  std::map<size_t, at::Tensor> shards;
  if (in_shards_) {
    for (const Piece& piece : strategy.store().shards()->held) {
      shards[piece.parameter] = piece.tensor.detach();
    }
  }
  const memory::MemoryScope scope(memory::Purpose::kMoments);
  for (const Range& range : placement_.holders[communicator_->rank()]) {
    Held& held = held_.emplace_back();
    held.parameter = static_cast<size_t>(range.parameter);
    held.begin = range.begin;
    const int64_t elements = range.end - range.begin;
    const at::Tensor& whole = parameters_[held.parameter].tensor;
    if (in_shards_) {
      held.value = shards.at(held.parameter);
    } else if (replicated_) {
      held.value = whole;  // the tensor itself, because Exchange changes its memory
    } else {
      held.value = whole.detach().view({-1}).narrow(0, range.begin, elements);
    }
    held.average = before[{held.parameter, held.begin, elements}];
    if (!held.average.defined()) {
      held.average = at::empty(held.value.sizes(), held.value.options());
    }
    SameType& same_type = by_type_[types_[held.parameter]];
    same_type.averages.push_back(held.average);
    same_type.values.push_back(held.value);
  }
}

void Averages::Begin(const Plan& plan) {
  Hold(plan);
  begun_ = true;
}

void Averages::Forget() {
  held_.clear();
  by_type_.clear();
  begun_ = false;
}

void Averages::Update(int64_t step, const Plan& plan) {
  if (step % config_.every != 0) return;
  const c10::NoGradGuard no_grad;
  const bool first = !begun_;
  if (first) Begin(plan);
  for (const auto& [type, same_type] : by_type_) {
    if (!first && c10::isFloatingType(type)) {
      at::_foreach_lerp_(same_type.averages, same_type.values, 1 - config_.decay);
      continue;
    }
    for (size_t i = 0; i < same_type.averages.size(); ++i) {
      device::CopyAll(same_type.averages[i], same_type.values[i]);
    }
  }
}

void Averages::LeavePlan() {
  by_type_.clear();
  for (Held& held : held_) held.value.reset();
}

absl::StatusOr<int64_t> Averages::EnterPlan(const Plan& plan, int64_t step) {
  if (!begun_) return 0;
  const parallel::Arrangement from{.holders = placement_, .held = Pieces()};
  Hold(plan);
  return parallel::MovePieces(from, {.holders = placement_, .held = Pieces()},
                              parallel::ElementBytes(types_), communicator_,
                              {"reshard of averages", step});
}

std::vector<Piece> Averages::Pieces() const {
  std::vector<Piece> pieces;
  for (const Held& held : held_) {
    pieces.push_back({.parameter = held.parameter, .begin = held.begin, .tensor = held.average});
  }
  return pieces;
}

void Averages::Exchange() {
  for (const Held& held : held_) {
    if (!replicated_) {
      ExchangeValues(held.average, held.value);
      continue;
    }
    const at::Tensor parameter = held.value.detach();
    held.value.set_data(held.average.detach());
    held.average.set_data(parameter);
  }
}

absl::Status Averages::Spread(int64_t step) {
  if (replicated_ || in_shards_) return absl::OkStatus();
  parallel::Arrangement from{.holders = placement_, .held = {}};
  for (const Held& held : held_) {
    from.held.push_back({.parameter = held.parameter, .begin = held.begin, .tensor = held.value});
  }
  parallel::Arrangement to{
      .holders = sharding::Replicated(placement_.elements, communicator_->world_size()),
      .held = {}};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    to.held.push_back({.parameter = i, .begin = 0, .tensor = parameters_[i].tensor.detach()});
  }
  return parallel::MovePieces(from, to, parallel::ElementBytes(types_), communicator_,
                              {"averages in place of parameters", step})
      .status();
}

void Averages::AddTo(checkpoint::StateBuilder* builder) const {
  if (!begun_) return;
  const auto parts = PartsOf(placement_);
  std::map<size_t, const Held*> held;
  for (const Held& one : held_) held[one.parameter] = &one;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const auto own = held.find(i);
    if (replicated_ && own != held.end()) {
      builder->AddReplicated(checkpoint::kAverageSlot, name, own->second->average);
      continue;
    }
    builder->AddSharded({checkpoint::kAverageSlot, name, tensor.sizes().vec(), types_[i]},
                        parts[i]);
    if (own != held.end()) builder->Hold(own->second->begin, own->second->average);
  }
}

}  // namespace muster::train
