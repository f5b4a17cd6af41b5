#include "worker/parallel/fsdp/sharded_parameters.h"

namespace muster::parallel {

ShardedParameters::ShardedParameters(const std::vector<PlannedUnit>& plan, ParameterShards shards,
                                     std::vector<at::Tensor> flats, WholeUnits* whole,
                                     UnitCalls* calls)
    : shards_(std::move(shards)),
      flats_(std::move(flats)),
      whole_(whole),
      calls_(calls),
      units_(plan.size()),
      unit_of_parameter_(shards_.types.size()) {
  for (size_t unit = 0; unit < plan.size(); ++unit) {
    for (const size_t parameter : plan[unit].parameters) unit_of_parameter_[parameter] = unit;
  }
}

absl::Status ShardedParameters::Gather(const std::vector<size_t>& parameters) {
  calls_->FreeAll();
  gathered_ = true;
  std::vector<bool> wanted(units_);
  for (const size_t parameter : parameters) wanted[unit_of_parameter_[parameter]] = true;
  return whole_->GatherValues(wanted);
}

KeptMemory ShardedParameters::ReleaseModel() {
  KeptMemory kept{.flats = std::move(flats_), .held = {}};
  // Detached from the gradients, which are freed with this plan.
  for (const Piece& piece : shards_.held) {
    kept.held.push_back({piece.parameter, piece.begin, piece.tensor.detach()});
  }
  return kept;
}

}  // namespace muster::parallel
