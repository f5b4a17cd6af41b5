// What a refresh would do.
#include <utility>

#include "common/status/status.h"
#include "worker/layout/placement.h"
#include "worker/parallel/fsdp/placement.h"
#include "worker/parallel/move_pieces.h"
#include "worker/train/training.h"

namespace muster::train {
namespace {

using layout::Placement;

struct Placements {
  Placement owners;                  // of what is trained
  std::optional<Placement> holders;  // of parameters, where they lie in shards
};

// Under a plan of the parameters that require a gradient.
absl::StatusOr<Placements> PlacementsOf(const Job& job, const models::Model& model,
                                        int world_size) {
  const std::vector<models::Parameter> parameters = model.Parameters();
  if (const auto* sharded = std::get_if<parallel::ShardedDdpOptions>(&job.strategy)) {
    return Placements{parallel::OwnersUnderShardedDdp(parameters, world_size, *sharded), {}};
  }
  if (const auto* fsdp = std::get_if<parallel::FsdpOptions>(&job.strategy)) {
    ASSIGN_OR_RETURN(auto placement, parallel::PlacementUnderFsdp(parameters, model.root(),
                                                                  world_size, fsdp->units));
    return Placements{std::move(placement.owners), std::move(placement.holders)};
  }
  std::vector<int64_t> trained;
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : parameters) {
    elements.push_back(tensor.numel());
    trained.push_back(tensor.requires_grad() ? tensor.numel() : 0);
  }
  Placements placements{layout::Replicated(trained, world_size), {}};
  placements.owners.elements = std::move(elements);
  return placements;
}

// The flags of a model as they would be, while this lives.
class Supposed {
 public:
  Supposed(const models::Model& model, const Mask& mask)
      : parameters_(model.Parameters()), before_(FlagsOf(parameters_)) {
    Set(mask);
  }
  ~Supposed() { Set(before_); }
  Supposed(const Supposed&) = delete;
  Supposed& operator=(const Supposed&) = delete;

 private:
  void Set(const Mask& mask) {
    for (size_t i = 0; i < mask.size(); ++i) {
      at::Tensor(parameters_[i].tensor).requires_grad_(mask[i]);
    }
  }
  const std::vector<models::Parameter> parameters_;
  const Mask before_;
};

// The ranges of the chosen parameters of a rank, in bytes.
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
  const int world_size = parts_.communicator->world_size();
  const std::vector<int64_t> element_bytes = parallel::ElementBytes(types_);
  int64_t whole = 0;
  const auto parameters = parts_.model->Parameters();
  for (size_t i = 0; i < types_.size(); ++i) {
    whole += parameters[i].tensor.numel() * element_bytes[i];
  }
  int64_t slots = 0;
  for (const optim::StateSlot& slot : optimizer_->Slots()) slots += !slot.scalar;

  ASSIGN_OR_RETURN(const Placements now, PlacementsOf(*parts_.job, *parts_.model, world_size));
  absl::StatusOr<Placements> planned;
  {
    const Supposed supposed(*parts_.model, mask);
    planned = PlacementsOf(*parts_.job, *parts_.model, world_size);
  }
  RETURN_IF_ERROR(planned.status());
  const OptimizerState state = AllState();
  Mask comes_along;  // state of what is trained then
  Mask stays;        // of what is frozen then
  for (size_t i = 0; i < mask.size(); ++i) {
    comes_along.push_back(state.present[i] && mask[i]);
    stays.push_back(state.present[i] && !mask[i]);
  }
  Foresight foresight;
  ASSIGN_OR_RETURN(foresight.bytes_moved,
                   parallel::BytesToMove(Only(state.holders, comes_along),
                                         Only(planned->owners, comes_along), element_bytes));
  foresight.bytes_moved *= slots;
  if (now.holders.has_value()) {
    ASSIGN_OR_RETURN(const int64_t moved,
                     parallel::BytesToMove(*now.holders, *planned->holders, element_bytes));
    foresight.bytes_moved += moved;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    const auto bytes = [&](const Placements& placements, int64_t state_bytes) {
      const int64_t held = placements.holders.has_value()
                               ? BytesOf(*placements.holders, rank, element_bytes)
                               : whole;
      return held + BytesOf(placements.owners, rank, element_bytes) + slots * state_bytes;
    };
    foresight.bytes_before.push_back(bytes(now, BytesOf(state.holders, rank, element_bytes)));
    foresight.bytes_after.push_back(
        bytes(*planned, BytesOf(planned->owners, rank, element_bytes) +
                            BytesOf(state.holders, rank, element_bytes, &stays)));
  }
  return foresight;
}

}  // namespace muster::train
