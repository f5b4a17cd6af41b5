#include "worker/train/training/optimizer_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/move_pieces.h"
#include "worker/train/training/averages.h"

namespace muster::train {
namespace {

using sharding::Placement;
using sharding::Range;

// Returns the placement of a scalar slot: one element per parameter, on each rank that holds a part
// of the parameter.
Placement OfScalars(const Placement& placement) {
  Placement scalars{.elements = std::vector<int64_t>(placement.elements.size(), 1), .holders = {}};
  for (const auto& ranges : placement.holders) {
    std::vector<Range>& held = scalars.holders.emplace_back();
    for (const Range& range : ranges) held.push_back({range.parameter, 0, 1});
  }
  return scalars;
}

// Returns the parameters of which some rank holds different elements in `a` and in `b`.
std::vector<bool> Differing(const Placement& a, const Placement& b) {
  std::vector<bool> differing(a.elements.size());
  for (size_t rank = 0; rank < a.holders.size(); ++rank) {
    std::map<int64_t, std::pair<int64_t, int64_t>> held;
    for (const Range& range : a.holders[rank]) held[range.parameter] = {range.begin, range.end};
    for (const Range& range : b.holders[rank]) {
      const auto found = held.find(range.parameter);
      if (found == held.end() || found->second != std::pair(range.begin, range.end)) {
        differing[range.parameter] = true;
      }
      if (found != held.end()) held.erase(found);
    }
    for (const auto& [parameter, range] : held) differing[parameter] = true;
  }
  return differing;
}

// Returns each slot that any parameter has, once.
std::vector<optim::StateSlot> Distinct(const ParameterSlots& slots) {
  std::vector<optim::StateSlot> distinct;
  for (const auto& of_parameter : slots) {
    for (const optim::StateSlot& slot : of_parameter) {
      if (std::find(distinct.begin(), distinct.end(), slot) == distinct.end()) {
        distinct.push_back(slot);
      }
    }
  }
  return distinct;
}

// Returns which parameters have this slot.
std::vector<bool> Having(const optim::StateSlot& slot, const ParameterSlots& slots) {
  std::vector<bool> having;
  for (const auto& own : slots) {
    having.push_back(std::find(own.begin(), own.end(), slot) != own.end());
  }
  return having;
}

at::Tensor NewSlot(const optim::StateSlot& slot, at::IntArrayRef sizes, at::ScalarType type,
                   c10::Device device, bool zeros) {
  const memory::MemoryScope scope(memory::Purpose::kMoments);
  if (slot.scalar) return at::zeros({}, at::TensorOptions(at::kFloat).device(device));
  const auto options = at::TensorOptions(type).device(device);
  return zeros ? at::zeros(sizes, options) : at::empty(sizes, options);
}

}  // namespace

OptimizerState StateOfOptimizer(const parallel::Strategy& strategy, optim::Optimizer& optimizer,
                                const std::vector<models::Parameter>& parameters,
                                const Mask& trained) {
  OptimizerState state{.present = trained, .holders = strategy.plan().owners, .held = {}};
  std::map<std::string, std::vector<at::Tensor>> slots;
  for (const optim::NamedTensor& tensor : optimizer.State()) {
    slots[tensor.parameter].push_back(tensor.tensor);
  }
  for (const parallel::Piece& piece : strategy.pieces()) {
    state.held[piece.parameter] = {.begin = piece.begin,
                                   .elements = piece.tensor.numel(),
                                   .slots = slots[parameters[piece.parameter].name]};
  }
  return state;
}

OptimizerState ZeroState(const std::vector<bool>& present, const ParameterSlots& slots,
                         const std::vector<models::Parameter>& parameters,
                         const std::vector<at::ScalarType>& types, bool replicated, int rank,
                         int world_size) {
  std::vector<int64_t> all;
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all.push_back(parameters[i].tensor.numel());
    chosen.push_back(present[i] ? all.back() : 0);
  }
  OptimizerState state{.present = present, .holders = {}, .held = {}};
  state.holders = replicated ? sharding::Replicated(chosen, world_size)
                             : sharding::CutEvenly(chosen, world_size, layout::kAlignment);
  state.holders.elements = all;
  const auto hold = [&](size_t parameter, int64_t begin, int64_t elements) {
    StatePiece& piece = state.held[parameter];
    piece.begin = begin;
    piece.elements = elements;
    for (const optim::StateSlot& slot : slots[parameter]) {
      const std::vector<int64_t> flat = {elements};
      piece.slots.push_back(
          NewSlot(slot, replicated ? parameters[parameter].tensor.sizes() : at::IntArrayRef(flat),
                  types[parameter], parameters[parameter].tensor.device(), /*zeros=*/true));
    }
  };
  for (const Range& range : state.holders.holders[rank]) {
    hold(range.parameter, range.begin, range.end - range.begin);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (present[i] && all[i] == 0 && (replicated || rank == 0)) hold(i, 0, 0);
  }
  return state;
}

absl::StatusOr<StateMove> MoveState(OptimizerState state, const parallel::Strategy& strategy,
                                    const Mask& trained, const ParameterSlots& slots,
                                    const std::vector<at::ScalarType>& types,
                                    comm::Communicator* communicator, int64_t step) {
  const size_t count = trained.size();
  StateMove result;
  result.parked.present.resize(count);
  std::vector<bool> wanted(count);
  for (size_t i = 0; i < count; ++i) {
    wanted[i] = state.present[i] && trained[i];
    result.parked.present[i] = state.present[i] && !trained[i];
  }
  result.parked.holders = Only(state.holders, result.parked.present);
  Placement from = Only(state.holders, wanted);
  Placement to = Only(strategy.plan().owners, wanted);
  const std::vector<bool> moving = Differing(from, to);
  from = Only(from, moving);
  to = Only(to, moving);

  // Each kind of slot is moved separately, in the same order on all ranks.
  const std::vector<optim::StateSlot> all_slots = Distinct(slots);
  std::vector<parallel::Arrangement> sources(all_slots.size());
  std::vector<parallel::Arrangement> targets(all_slots.size());
  const std::vector<int64_t> element_bytes = parallel::ElementBytes(types);
  for (size_t s = 0; s < all_slots.size(); ++s) {
    const std::vector<bool> having = Having(all_slots[s], slots);
    const Placement own_from = Only(from, having);
    const Placement own_to = Only(to, having);
    sources[s].holders = all_slots[s].scalar ? OfScalars(own_from) : own_from;
    targets[s].holders = all_slots[s].scalar ? OfScalars(own_to) : own_to;
  }
  const auto add = [&](size_t parameter, int64_t begin, const std::vector<at::Tensor>& tensors,
                       std::vector<parallel::Arrangement>* arrangements) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const optim::StateSlot& slot = slots[parameter][i];
      const size_t s = std::find(all_slots.begin(), all_slots.end(), slot) - all_slots.begin();
      (*arrangements)[s].held.push_back({parameter, slot.scalar ? 0 : begin, tensors[i]});
    }
  };
  for (auto& [parameter, piece] : state.held) {
    if (!trained[parameter]) {
      result.parked.held[parameter] = std::move(piece);
    } else if (moving[parameter]) {
      add(parameter, piece.begin, piece.slots, &sources);
    }
  }
  for (const parallel::Piece& piece : strategy.pieces()) {
    std::vector<at::Tensor>& own = result.of_pieces.emplace_back();
    if (!wanted[piece.parameter]) continue;  // the parameter never had state
    if (!moving[piece.parameter]) {
      own = std::move(state.held.at(piece.parameter).slots);
      continue;
    }
    for (const optim::StateSlot& slot : slots[piece.parameter]) {
      own.push_back(NewSlot(slot, piece.tensor.sizes(), piece.tensor.scalar_type(),
                            piece.tensor.device(), false));
    }
    add(piece.parameter, piece.begin, own, &targets);
  }
  const std::vector<int64_t> scalar_bytes(count, static_cast<int64_t>(sizeof(float)));
  for (size_t s = 0; s < all_slots.size(); ++s) {
    const auto& bytes = all_slots[s].scalar ? scalar_bytes : element_bytes;
    ASSIGN_OR_RETURN(const int64_t moved,
                     parallel::MovePieces(sources[s], targets[s], bytes, communicator,
                                          {"reshard of optimizer state", step}));
    result.bytes += moved;
  }
  return result;
}

OptimizerState Join(OptimizerState a, OptimizerState b) {
  for (size_t i = 0; i < b.present.size(); ++i) {
    if (b.present[i]) a.present[i] = true;
  }
  for (size_t rank = 0; rank < b.holders.holders.size(); ++rank) {
    auto& ranges = a.holders.holders[rank];
    ranges.insert(ranges.end(), b.holders.holders[rank].begin(), b.holders.holders[rank].end());
  }
  a.held.merge(b.held);
  return a;
}

void AddState(const OptimizerState& state, const ParameterSlots& slots,
              const std::vector<models::Parameter>& parameters,
              const std::vector<at::ScalarType>& types, bool replicated,
              checkpoint::StateBuilder* builder) {
  const auto parts = PartsOf(state.holders);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!state.present[i]) continue;
    const std::string& name = parameters[i].name;
    const auto held = state.held.find(i);
    int first_owner = 0;  // rank 0 for a parameter without elements
    for (const auto& part : parts[i]) {
      if (part.begin == 0) first_owner = part.rank;
    }
    for (size_t s = 0; s < slots[i].size(); ++s) {
      const optim::StateSlot& slot = slots[i][s];
      if (replicated) {
        builder->AddReplicated(slot.name, name, held->second.slots[s]);
        continue;
      }
      if (slot.scalar) {
        builder->AddSharded({slot.name, name, {}, at::kFloat}, {{first_owner, 0, 1}});
      } else {
        builder->AddSharded({slot.name, name, parameters[i].tensor.sizes().vec(), types[i]},
                            parts[i]);
      }
      if (held != state.held.end()) {
        builder->Hold(slot.scalar ? 0 : held->second.begin, held->second.slots[s]);
      }
    }
  }
}

}  // namespace muster::train
