// Computes what a refresh would do.
#include <utility>

#include "common/layout/placement.h"
#include "common/status/status.h"
#include "worker/parallel/move_pieces.h"
#include "worker/parallel/strategy.h"
#include "worker/train/training/training.h"

namespace muster::train {
namespace {

using layout::Placement;
using parallel::Placements;

// The bytes that a rank holds of the chosen parameters. `chosen` null: of all parameters.
int64_t BytesOf(const Placement& placement, size_t rank, const std::vector<int64_t>& element_bytes,
                const Mask* chosen = nullptr) {
  int64_t bytes = 0;
  for (const layout::Range& range : placement.holders[rank]) {
    if (chosen != nullptr && !(*chosen)[range.parameter]) continue;
    bytes += (range.end - range.begin) * element_bytes[range.parameter];
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Training::Foresight> Training::Foresee(const Mask& mask) const {
  const int world_size = parts_.communicators.gradients->world_size();
  const std::vector<int64_t> element_bytes = parallel::ElementBytes(types_);
  int64_t whole = 0;
  const auto parameters = parts_.model->Parameters();
  for (size_t i = 0; i < types_.size(); ++i) {
    whole += parameters[i].tensor.numel() * element_bytes[i];
  }
  std::vector<int64_t> state_bytes;  // for each element of a parameter
  for (size_t i = 0; i < types_.size(); ++i) {
    int64_t slots = 0;
    for (const optim::StateSlot& slot : slots_[i]) slots += !slot.scalar;
    state_bytes.push_back(slots * element_bytes[i]);
  }

  const Placements now = strategy_->PlacementsFor(this->mask());
  const Placements planned = strategy_->PlacementsFor(mask);
  const OptimizerState state = AllState();
  Mask comes_along;  // has state and will be trained
  Mask stays;        // has state and will be frozen
  for (size_t i = 0; i < mask.size(); ++i) {
    comes_along.push_back(state.present[i] && mask[i]);
    stays.push_back(state.present[i] && !mask[i]);
  }
  Foresight foresight;
  ASSIGN_OR_RETURN(foresight.bytes_moved,
                   parallel::BytesToMove(Only(state.holders, comes_along),
                                         Only(planned.owners, comes_along), state_bytes));
  if (now.holders.has_value()) {
    ASSIGN_OR_RETURN(const int64_t moved,
                     parallel::BytesToMove(*now.holders, *planned.holders, element_bytes));
    foresight.bytes_moved += moved;
  }
  if (averages_.has_value() && averages_->begun()) {
    const bool replicated = !strategy_->plan().sharded;
    ASSIGN_OR_RETURN(
        const int64_t moved,
        parallel::BytesToMove(Averages::PlacementFor(now, replicated),
                              Averages::PlacementFor(planned, replicated), element_bytes));
    foresight.bytes_moved += moved;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    const auto bytes = [&](const Placements& placements, int64_t of_state) {
      const int64_t held = placements.holders.has_value()
                               ? BytesOf(*placements.holders, rank, element_bytes)
                               : whole;
      return held + BytesOf(placements.owners, rank, element_bytes) + of_state;
    };
    foresight.bytes_before.push_back(bytes(now, BytesOf(state.holders, rank, state_bytes)));
    foresight.bytes_after.push_back(
        bytes(planned, BytesOf(planned.owners, rank, state_bytes) +
                           BytesOf(state.holders, rank, state_bytes, &stays)));
  }
  return foresight;
}

}  // namespace muster::train
