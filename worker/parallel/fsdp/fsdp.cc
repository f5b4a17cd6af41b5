#include "worker/parallel/fsdp/fsdp.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/parallel/fsdp/unit_calls.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/fsdp/unit_slices.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/gradients/sliced_gradients.h"
#include "worker/parallel/gradients/unused_pieces.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_store.h"
#include "worker/parallel/slice_pieces.h"

namespace muster::parallel {
namespace {

// Returns the placements of a plan of `parameters` with these groups.
Placements PlacementsOf(const std::vector<models::Parameter>& parameters,
                        const UnitGroups& trainable, const UnitGroups& frozen, int world_size) {
  const std::vector<int64_t> elements = ElementsOf(parameters);
  const auto owners = [&](const UnitGroups& kind) {
    return OwnersOf(kind.groups, kind.specs, kind.indices, elements, world_size);
  };
  Placements placements{.owners = owners(trainable), .holders = owners(frozen)};
  for (int rank = 0; rank < world_size; ++rank) {
    const auto& owned = placements.owners.holders[rank];
    auto& held = placements.holders->holders[rank];
    held.insert(held.end(), owned.begin(), owned.end());
  }
  return placements;
}

// The store of fsdp: each rank holds slices of all parameters between steps.
class ShardedParameters : public ParameterStore {
 public:
  // plan: of the units. flats: see KeptMemory::flats. `whole` and `calls` must outlive this object.
  ShardedParameters(const std::vector<PlannedUnit>& plan, ParameterShards shards,
                    std::vector<at::Tensor> flats, WholeUnits* whole, UnitCalls* calls)
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

  const ParameterShards* shards() const override { return &shards_; }
  absl::Status Gather(const std::vector<size_t>& parameters) override {
    calls_->FreeAll();
    gathered_ = true;
    std::vector<bool> wanted(units_);
    for (const size_t parameter : parameters) wanted[unit_of_parameter_[parameter]] = true;
    return whole_->GatherValues(wanted);
  }
  void Release() override { whole_->ReleaseValues(); }
  absl::Status BeginPass(PassMemory memory, std::function<void()> exchange) override {
    return whole_->BeginPass(memory, std::move(exchange));
  }
  absl::Status EndPass() override { return whole_->EndPass(); }
  int64_t BytesOfWholePass() const override { return whole_->bytes_to_gather(); }

  // Returns whether Gather was called since the last call of this function.
  bool TakeGathered() { return std::exchange(gathered_, false); }
  // See Strategy::ReleaseModel.
  KeptMemory ReleaseModel() {
    KeptMemory kept{.flats = std::move(flats_), .held = {}};
    // Detached from the gradients, which are freed with this plan.
    for (const Piece& piece : shards_.held) {
      kept.held.push_back({piece.parameter, piece.begin, piece.tensor.detach()});
    }
    return kept;
  }

 private:
  ParameterShards shards_;
  std::vector<at::Tensor> flats_;  // the memory of this rank's slices
  WholeUnits* const whole_;
  UnitCalls* const calls_;
  const size_t units_;                     // number of units
  std::vector<size_t> unit_of_parameter_;  // indices in the plan
  bool gathered_ = false;
};

class Fsdp : public Strategy {
 public:
  Fsdp(const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
       std::vector<PlannedUnit> units, const Communicators& communicators,
       const FsdpOptions& options, const KeptMemory& kept);

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<at::Tensor>& unused() const override { return unused_->flags(); }
  const Plan& plan() const override { return plan_; }
  const ParameterStore& store() const override { return *store_; }
  ParameterStore& store() override { return *store_; }
  Placements PlacementsFor(const std::vector<bool>& trained) const override {
    return PlacementsOf(parameters_, GroupsOf(trained, GroupKind::kTrainable),
                        GroupsOf(trained, GroupKind::kFrozen), world_size());
  }
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override {
    auto context = calls_->MakeContext(mode, std::move(generator));
    context->set_use_observer(gradients_->use_observer());
    return context;
  }

  void BeginStep(const StepStart& start) override {
    step_ = start.step;
    whole_->BeginStep(step_);
    // Whole units have the values of the last update: FinishUpdate frees units with older values.
    gradients_->BeginStep(start);
    unused_->BeginStep();
  }
  void BeginMicroBatch(bool last) override {
    calls_->FreeAfterPass();
    gradients_->BeginMicroBatch(last);
  }
  void BeginJoinedMicroBatch(bool last) override {
    calls_->FreeAfterPass();
    gradients_->BeginJoinedMicroBatch(last);
  }
  absl::Status FinishBackward(const BucketReduced& reduced) override {
    calls_->FreeAll();
    return gradients_->Finish(unused_->LookBefore(reduced));
  }
  absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) override {
    return GatherPieceSums(mine, step_, communicators_.gradients);
  }
  void FinishUpdate() override {
    // Units that an evaluation has gathered since FinishBackward have old values, too.
    calls_->FreeAll();
    // After a Gather between steps (by a hook that reads parameters), another one is likely. Units
    // that are gathered ahead would then be freed unused.
    if (!store_->TakeGathered()) calls_->GatherAhead();
  }
  absl::Status AwaitParameters() override { return absl::OkStatus(); }
  void RestoreBuffers() override { gradients_->RestoreBuffers(); }
  void RestoreBuffersIf(const at::Tensor& skip) override { gradients_->RestoreBuffersIf(skip); }
  absl::Status VerifyParametersEqual(int64_t step) override {
    // Parameters cannot be compared, because each element is on one rank only.
    return CheckModelEqualOnAllRanks({}, buffers_, step, communicators_.gradients);
  }
  KeptMemory ReleaseModel() override { return store_->ReleaseModel(); }

 private:
  int world_size() const { return communicators_.gradients->world_size(); }
  UnitGroups GroupsOf(const std::vector<bool>& trained, GroupKind kind) const {
    return GroupByUnit(parameters_, trained, units_, kind, world_size());
  }

  const Communicators communicators_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  const std::vector<PlannedUnit> units_;  // the root first
  Plan plan_;
  std::unique_ptr<WholeUnits> whole_;
  std::unique_ptr<SlicedGradients> gradients_;
  std::vector<Piece> pieces_;
  std::optional<UnusedPieces> unused_;
  std::optional<UnitCalls> calls_;
  std::optional<ShardedParameters> store_;
  int64_t step_ = 0;
};

Fsdp::Fsdp(const std::vector<models::Parameter>& parameters,
           const std::vector<models::Buffer>& buffers, std::vector<PlannedUnit> units,
           const Communicators& communicators, const FsdpOptions& options, const KeptMemory& kept)
    : communicators_(communicators),
      parameters_(parameters),
      buffers_(buffers),
      units_(std::move(units)) {
  const int rank = communicators.gradients->rank();
  ParameterShards shards;
  for (const auto& [name, tensor] : parameters) shards.types.push_back(tensor.scalar_type());
  const std::vector<bool> trained = TrainedOf(parameters);
  const UnitGroups trainable = GroupsOf(trained, GroupKind::kTrainable);
  const UnitGroups frozen = GroupsOf(trained, GroupKind::kFrozen);
  Placements placements = PlacementsOf(parameters, trainable, frozen, world_size());
  shards.holders = *std::move(placements.holders);
  plan_ = {
      .sharded = true,
      .owners = std::move(placements.owners),
      .fingerprint = layout::Fingerprint(trainable.groups, trainable.specs, world_size()) * 31 +
                     layout::Fingerprint(frozen.groups, frozen.specs, world_size()),
      .buckets = static_cast<int64_t>(trainable.groups.size())};

  UnitSlices slices = MakeUnitSlices(parameters, units_, trainable, frozen, options,
                                     communicators.parameters, kept);
  whole_ = std::move(slices.whole);
  std::vector<models::Parameter> reduced;
  for (const size_t index : trainable.indices) reduced.push_back(parameters[index]);
  std::vector<std::string> labels;
  for (const size_t unit : trainable.units) {
    labels.push_back(absl::StrCat("gradients of ", Who(units_, unit)));
  }
  gradients_ = std::make_unique<SlicedGradients>(
      std::move(reduced), trainable.groups, std::move(labels), buffers, communicators.gradients,
      SlicedGradients::Options{options.reduce_every, options.reduce_in_bfloat16});
  for (size_t i = 0; i < slices.trainable.size(); ++i) {
    slices.trainable[i].gradients = gradients_->slice(i);
  }
  const auto pieces_of = [&](const UnitGroups& kind, const std::vector<Slice>& own) {
    return PiecesOf(kind.groups, kind.specs, kind.indices, own, rank, world_size());
  };
  pieces_ = pieces_of(trainable, slices.trainable);
  shards.held = pieces_of(frozen, slices.frozen);
  shards.held.insert(shards.held.end(), pieces_.begin(), pieces_.end());
  unused_.emplace(pieces_, trainable.indices,
                  [this](size_t parameter) { return gradients_->used(parameter); });
  calls_.emplace(units_, trainable.units, options, communicators.parameters->device().type(),
                 whole_.get(), gradients_.get());
  store_.emplace(units_, std::move(shards), std::move(slices.flats), whole_.get(), &*calls_);
}

// INVALID_ARGUMENT for float32 buffers with bfloat16 parameters: a forward cannot combine both.
absl::Status CheckBuffersFor(const FsdpOptions& options,
                             const std::vector<models::Buffer>& buffers) {
  if (!options.parameters_in_bfloat16) return absl::OkStatus();
  for (const auto& [name, tensor] : buffers) {
    if (tensor.scalar_type() != at::kFloat) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer '", name, "' is float32, which cannot be combined with parameters in bfloat16"));
  }
  return absl::OkStatus();
}

absl::Status CheckFrozen(const std::vector<models::Parameter>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const at::ScalarType type = tensor.scalar_type();
    if (type == at::kFloat || type == at::kDouble || type == at::kLong) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", name, "' is ", c10::toString(type), ", not float32, float64 or int64"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> CreateFsdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, const Communicators& communicators, const FsdpOptions& options,
    KeptMemory kept) {
  RETURN_IF_ERROR(CheckParameters(parameters, std::nullopt));
  RETURN_IF_ERROR(CheckFrozen(parameters));
  RETURN_IF_ERROR(CheckBuffers(buffers, communicators.parameters->device()));
  RETURN_IF_ERROR(CheckBuffersFor(options, buffers));
  ASSIGN_OR_RETURN(auto units, PlanUnits(*root, parameters, options.units, options.replicate));
  return std::make_unique<Fsdp>(parameters, buffers, std::move(units), communicators, options,
                                kept);
}

}  // namespace muster::parallel
