#include "worker/parallel/fsdp/fsdp.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/models/autocast_state.h"
#include "worker/models/context_error.h"
#include "worker/parallel/fsdp/backward_hooks.h"
#include "worker/parallel/fsdp/flat_group.h"
#include "worker/parallel/fsdp/kept_slices.h"
#include "worker/parallel/fsdp/placement.h"
#include "worker/parallel/fsdp/unit_groups.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_hash.h"
#include "worker/parallel/gradients/partial_sums.h"
#include "worker/parallel/slice_pieces.h"
#include "worker/parallel/gradients/unused_pieces.h"

namespace muster::parallel {
namespace {

// The most units that are whole at a time, without the root and without units that stay whole: the
// unit that runs, and the unit that is gathered in the meantime.
constexpr int kMostInFlight = 2;

class Fsdp : public Strategy, public BackwardObserver {
 public:
  Fsdp(const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
       std::vector<PlannedUnit> plan, const Communicators& communicators,
       const FsdpOptions& options, KeptMemory kept);

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<at::Tensor>& unused() const override { return unused_->flags(); }
  const ParameterShards* shards() const override { return &shards_; }
  bool sharded() const override { return true; }
  layout::Placement owners() const override { return owners_; }
  Placements PlacementsFor(const std::vector<bool>& trained) const override;
  uint64_t layout_fingerprint() const override { return layout_fingerprint_; }
  int64_t bucket_count() const override { return trainable_groups_; }
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override;

  void BeginStep(const StepStart& start) override;
  void BeginMicroBatch(bool last) override;
  void BeginJoinedMicroBatch(bool last) override;
  absl::Status FinishBackward(const BucketReduced& reduced) override;
  absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) override {
    return GatherPartialSums(mine, step_, communicators_.gradients);
  }
  void FinishUpdate() override;
  absl::Status AwaitParameters() override { return absl::OkStatus(); }
  absl::Status GatherParameters(const std::vector<size_t>& parameters) override;
  void ReleaseParameters() override { whole_->ReleaseValues(); }
  absl::Status BeginPass(PassMemory memory, std::function<void()> exchange) override {
    return whole_->BeginPass(memory, std::move(exchange));
  }
  absl::Status EndPass() override { return whole_->EndPass(); }
  int64_t BytesOfWholePass() const override { return whole_->bytes_to_gather(); }
  void RestoreBuffers() override { gradients_->RestoreBuffers(); }
  void RestoreBuffersIf(const at::Tensor& skip) override { gradients_->RestoreBuffersIf(skip); }
  absl::Status VerifyParametersEqual(int64_t step) override;
  KeptMemory ReleaseModel() override;

  // Runs a unit of the model. A planned unit is gathered before; if the backward reads its
  // parameters, it is gathered before that, too.
  using Forward = std::function<models::Tensors(const models::Tensors&)>;
  models::Tensors Run(models::Unit& unit, const models::Tensors& inputs, bool backward_reads,
                      const Forward& forward);
  void BeforeBackward(int64_t call) override;
  void AfterBackward(int64_t call) override;

 private:
  struct Unit {
    size_t number = 0;              // in the plan
    std::vector<size_t> trainable;  // the numbers of its trainable groups
    int running = 0;                // number of forwards that run now, with nested ones
    int backwards = 0;  // number of calls with a hooked output whose backward has not ended
    int open = 0;       // number of these calls whose backward has begun
    // A call of it may bring gradients of which AfterBackward says nothing: its backward reads no
    // parameters, or it ran without a graph, as it does in a unit that is recomputed.
    bool unobserved = false;
  };
  struct Call {
    Unit* unit = nullptr;
    bool backward = false;  // its backward has not ended
    bool begun = false;     // its backward has begun, by any of its outputs
  };

  int rank() const { return communicators_.gradients->rank(); }
  int world_size() const { return communicators_.gradients->world_size(); }
  UnitGroups GroupsOf(const std::vector<bool>& trained, GroupKind kind) const {
    return GroupByUnit(parameters_, trained, plan_, kind, world_size());
  }
  // Adds the groups of one kind to their units. given: the slice of each group; undefined: there is
  // no memory for it yet. Returns the slices of these groups, in order.
  std::vector<Slice> AddGroups(const UnitGroups& kind, const at::Tensor* given, const char* what,
                               bool resident);
  void MakePieces(const UnitGroups& trainable, const std::vector<Slice>& slices,
                  const UnitGroups& frozen, const std::vector<Slice>& frozen_slices);
  void Trace(const Unit& unit, UnitEvent::Kind kind) const { whole_->Trace(unit.number, kind); }
  void Free(const Unit& unit) { whole_->Free(unit.number); }
  // Throws ContextError if the unit does not arrive.
  void AwaitWhole(const Unit& unit);
  void ForgetCalls();
  void FreeAll();
  // Frees what a forward and backward have left, except the root and the unit that the next forward
  // begins with.
  void FreeAfterPass();
  // The first unit below the root in the newest forward of the root; null: there was none.
  Unit* first() const { return running_.size() > 1 ? running_[1] : nullptr; }
  void BeginForward(Unit& unit);
  models::Tensors RunRoot(Unit& root, const models::Tensors& inputs, const Forward& forward);
  models::Tensors RunUnit(Unit& unit, const models::Tensors& inputs, bool backward_reads,
                          const Forward& forward);
  // Starts to gather a unit that is needed soon, if the limit of whole units allows it.
  void Prefetch(const Unit& unit);
  void PrefetchAfter(const Unit& unit);

  const Communicators communicators_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  const std::vector<PlannedUnit> plan_;
  const FsdpOptions options_;
  std::vector<std::unique_ptr<Unit>> units_;  // the root first
  std::unique_ptr<WholeUnits> whole_;
  std::vector<at::Tensor> flats_;  // the memory of this rank's slices
  std::unordered_map<const models::Unit*, Unit*> unit_of_;
  std::vector<Unit*> unit_of_parameter_;
  int64_t trainable_groups_ = 0;
  std::unique_ptr<SlicedGradients> gradients_;
  std::vector<Piece> pieces_;
  std::optional<UnusedPieces> unused_;
  ParameterShards shards_;
  layout::Placement owners_;
  uint64_t layout_fingerprint_ = 0;

  int64_t step_ = 0;
  bool read_outside_ = false;  // GatherParameters was called since the last update
  // The calls of units below the root in this micro-batch, if gradients are enabled.
  std::vector<Call> calls_;
  std::vector<Unit*> order_;    // the units in the order of the root's last finished forward
  std::vector<Unit*> running_;  // the same for the root's current forward
};

// Gathers units around their forwards.
class FsdpContext : public models::ForwardContext {
 public:
  FsdpContext(models::Mode mode, at::Generator generator, Fsdp* strategy)
      : models::ForwardContext(mode, std::move(generator)), strategy_(strategy) {}
  bool collective() const override { return true; }
  models::Tensors CallMany(models::Unit& unit, const models::Tensors& inputs) override {
    // A unit that is recomputed reads its parameters again.
    const bool backward_reads = recomputes(unit) || unit.BackwardReadsParameters(inputs);
    return strategy_->Run(unit, inputs, backward_reads, [&](const models::Tensors& all) {
      return models::ForwardContext::CallMany(unit, all);
    });
  }

 private:
  Fsdp* const strategy_;
};

std::string Who(const PlannedUnit& unit, bool root) {
  return root ? "the root" : absl::StrCat("unit '", unit.unit->name(), "'");
}

Fsdp::Fsdp(const std::vector<models::Parameter>& parameters,
           const std::vector<models::Buffer>& buffers, std::vector<PlannedUnit> plan,
           const Communicators& communicators, const FsdpOptions& options, KeptMemory kept)
    : communicators_(communicators),
      parameters_(parameters),
      buffers_(buffers),
      plan_(std::move(plan)),
      options_(options) {
  for (const auto& [name, tensor] : parameters) shards_.types.push_back(tensor.scalar_type());
  unit_of_parameter_.resize(parameters.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < plan_.size(); ++i) {
    units_.push_back(std::make_unique<Unit>());
    units_[i]->number = i;
    names.push_back(plan_[i].unit->name());
    unit_of_[plan_[i].unit] = units_[i].get();
    for (const size_t parameter : plan_[i].parameters)
      unit_of_parameter_[parameter] = units_[i].get();
  }
  whole_ = std::make_unique<WholeUnits>(std::move(names), options.trace);
  const std::vector<bool> trained = TrainedOf(parameters);
  const UnitGroups trainable = GroupsOf(trained, GroupKind::kTrainable);
  const UnitGroups frozen = GroupsOf(trained, GroupKind::kFrozen);
  trainable_groups_ = static_cast<int64_t>(trainable.groups.size());
  layout_fingerprint_ = layout::Fingerprint(trainable.groups, trainable.specs, world_size()) * 31 +
                        layout::Fingerprint(frozen.groups, frozen.specs, world_size());

  KeptSlices taken = TakeOverSlices(trainable, frozen, rank(), world_size(), std::move(kept));
  flats_ = std::move(taken.flats);
  auto slices = AddGroups(trainable, taken.slices.data(), "parameters of ", /*resident=*/false);
  const auto frozen_slices = AddGroups(frozen, taken.slices.data() + trainable.groups.size(),
                                       "frozen parameters of ", options.frozen_resident);
  std::vector<models::Parameter> reduced;
  for (const size_t index : trainable.indices) reduced.push_back(parameters[index]);
  std::vector<std::string> labels;
  for (const size_t unit : trainable.units) {
    units_[unit]->trainable.push_back(labels.size());
    labels.push_back(absl::StrCat("gradients of ", Who(plan_[unit], unit == 0)));
  }
  gradients_ = std::make_unique<SlicedGradients>(
      std::move(reduced), trainable.groups, std::move(labels), buffers, communicators.gradients,
      SlicedGradients::Options{options.reduce_every, options.reduce_in_bfloat16});
  for (size_t i = 0; i < slices.size(); ++i) slices[i].gradients = gradients_->slice(i);
  MakePieces(trainable, slices, frozen, frozen_slices);
  unused_.emplace(pieces_, trainable.indices,
                  [this](size_t parameter) { return gradients_->used(parameter); });
}

std::vector<Slice> Fsdp::AddGroups(const UnitGroups& kind, const at::Tensor* given,
                                   const char* what, bool resident) {
  std::vector<Slice> slices;
  for (size_t i = 0; i < kind.groups.size(); ++i) {
    const size_t unit = kind.units[i];
    auto group = std::make_unique<FlatGroup>(
        parameters_, kind.indices, kind.specs, kind.groups[i],
        FlatGroup::Options{.resident = resident,
                           .in_bfloat16 = options_.parameters_in_bfloat16,
                           .values = options_.values,
                           .slice = given[i]},
        communicators_.parameters, absl::StrCat(what, Who(plan_[unit], unit == 0)));
    slices.push_back({.parameters = group->slice()});
    if (!given[i].defined()) flats_.push_back(group->slice());
    whole_->AddGroup(unit, std::move(group));
  }
  return slices;
}

void Fsdp::MakePieces(const UnitGroups& trainable, const std::vector<Slice>& slices,
                      const UnitGroups& frozen, const std::vector<Slice>& frozen_slices) {
  pieces_ =
      PiecesOf(trainable.groups, trainable.specs, trainable.indices, slices, rank(), world_size());
  Placements placements = PlacementsOf(parameters_, trainable, frozen, world_size());
  owners_ = std::move(placements.owners);
  shards_.holders = *std::move(placements.holders);
  shards_.held =
      PiecesOf(frozen.groups, frozen.specs, frozen.indices, frozen_slices, rank(), world_size());
  shards_.held.insert(shards_.held.end(), pieces_.begin(), pieces_.end());
}

Placements Fsdp::PlacementsFor(const std::vector<bool>& trained) const {
  return PlacementsOf(parameters_, GroupsOf(trained, GroupKind::kTrainable),
                      GroupsOf(trained, GroupKind::kFrozen), world_size());
}

KeptMemory Fsdp::ReleaseModel() {
  KeptMemory kept{.flats = std::move(flats_), .held = {}};
  // Detached from the gradients, which are freed with this plan.
  for (const Piece& piece : shards_.held) {
    kept.held.push_back({piece.parameter, piece.begin, piece.tensor.detach()});
  }
  return kept;
}

std::unique_ptr<models::ForwardContext> Fsdp::MakeContext(models::Mode mode,
                                                          at::Generator generator) {
  auto context = std::make_unique<FsdpContext>(mode, std::move(generator), this);
  context->set_use_observer(gradients_->use_observer());
  return context;
}

void Fsdp::AwaitWhole(const Unit& unit) {
  const absl::Status status = whole_->Await(unit.number);
  if (!status.ok()) throw models::ContextError(status);
}

void Fsdp::ForgetCalls() {
  for (const auto& unit : units_) {
    unit->running = unit->backwards = unit->open = 0;
    unit->unobserved = false;
  }
  calls_.clear();
}

void Fsdp::FreeAll() {
  ForgetCalls();
  whole_->FreeAll();
}

void Fsdp::FreeAfterPass() {
  ForgetCalls();
  for (const auto& unit : units_) {
    if (unit->number != 0 && unit.get() != first()) Free(*unit);
  }
}

void Fsdp::Prefetch(const Unit& unit) {
  if (whole_->below_root() < kMostInFlight || !options_.reshard_after_forward) {
    whole_->StartGather(unit.number);
  }
}

void Fsdp::PrefetchAfter(const Unit& unit) {
  const size_t position = running_.size();  // of the unit that runs after `unit`
  if (position >= order_.size() || order_[position - 1] != &unit) return;
  Prefetch(*order_[position]);
}

models::Tensors Fsdp::Run(models::Unit& model_unit, const models::Tensors& inputs,
                          bool backward_reads, const Forward& forward) {
  const auto found = unit_of_.find(&model_unit);
  if (found == unit_of_.end()) return forward(inputs);
  Unit& unit = *found->second;
  return unit.number == 0 ? RunRoot(unit, inputs, forward)
                          : RunUnit(unit, inputs, backward_reads, forward);
}

void Fsdp::BeginForward(Unit& unit) {
  running_.push_back(&unit);
  AwaitWhole(unit);
  PrefetchAfter(unit);
  Trace(unit, UnitEvent::Kind::kForward);
}

// The tensors, those of one type converted to another one.
models::Tensors Converted(models::Tensors tensors, at::ScalarType from, at::ScalarType to) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == from) tensor = tensor.to(to);
  }
  return tensors;
}

models::Tensors Fsdp::RunRoot(Unit& root, const models::Tensors& inputs, const Forward& forward) {
  order_ = std::exchange(running_, {});
  BeginForward(root);
  // Autocast's cache would keep copies of parameters after their unit is freed.
  models::AutocastState autocast =
      models::AutocastState::Now(communicators_.parameters->device().type());
  autocast.keeps_casts = false;
  const models::ScopedAutocastState without_kept_casts(autocast);
  // The root is not freed: the loss may read its parameters, and backward needs them.
  if (!options_.parameters_in_bfloat16) return forward(inputs);
  return Converted(forward(Converted(inputs, at::kFloat, at::kBFloat16)), at::kBFloat16,
                   at::kFloat);
}

models::Tensors Fsdp::RunUnit(Unit& unit, const models::Tensors& inputs, bool backward_reads,
                              const Forward& forward) {
  const bool wanted = backward_reads && c10::GradMode::is_enabled();
  BeginForward(unit);
  const auto call = static_cast<int64_t>(calls_.size());
  if (!wanted) unit.unobserved = true;
  if (wanted) calls_.push_back({&unit});
  ++unit.running;
  models::Tensors outputs = forward(wanted ? ObserveInputs(inputs, this, call) : inputs);
  --unit.running;
  for (const at::Tensor& y : outputs) {
    if (y.requires_grad() && y.is_leaf()) {
      throw models::ModelError(absl::StrCat(
          Who(plan_[unit.number], /*root=*/false),
          " returns a parameter: its memory is freed after the forward; return a copy"));
    }
  }
  if (wanted && ObserveOutputs(outputs, this, call) > 0) {
    calls_[call].backward = true;
    ++unit.backwards;
  }
  const bool stays = whole_->stay_whole() || unit.running > 0 ||
                     (unit.backwards > 0 && !options_.reshard_after_forward);
  if (!stays) Free(unit);
  return outputs;
}

void Fsdp::BeforeBackward(int64_t call) {
  Unit& unit = *calls_[call].unit;
  AwaitWhole(unit);
  if (std::exchange(calls_[call].begun, true)) return;  // by another one of its outputs
  ++unit.open;
  for (int64_t before = call; before-- > 0;) {
    if (!calls_[before].backward || calls_[before].unit == &unit) continue;
    Prefetch(*calls_[before].unit);
    break;
  }
  Trace(unit, UnitEvent::Kind::kBeforeBackward);
}

void Fsdp::AfterBackward(int64_t call) {
  Unit& unit = *calls_[call].unit;
  Trace(unit, UnitEvent::Kind::kAfterBackward);
  calls_[call].backward = false;
  --unit.open;
  --unit.backwards;
  if (unit.open == 0 && (options_.reshard_after_forward || unit.backwards == 0)) Free(unit);
  if (unit.backwards > 0 || unit.unobserved) return;
  for (const size_t group : unit.trainable) gradients_->Close(group);
}

void Fsdp::BeginStep(const StepStart& start) {
  step_ = start.step;
  whole_->BeginStep(step_);
  // What is whole has the values of the last update: FinishUpdate frees what is older.
  gradients_->BeginStep(start);
  unused_->BeginStep();
}

void Fsdp::BeginMicroBatch(bool last) {
  FreeAfterPass();
  gradients_->BeginMicroBatch(last);
}

void Fsdp::BeginJoinedMicroBatch(bool last) {
  FreeAfterPass();
  gradients_->BeginJoinedMicroBatch(last);
}

absl::Status Fsdp::FinishBackward(const BucketReduced& reduced) {
  FreeAll();
  return gradients_->Finish(unused_->LookBefore(reduced));
}

void Fsdp::FinishUpdate() {
  FreeAll();  // also what an evaluation has gathered since FinishBackward: its values are old
  // Code that reads parameters between steps frees them again (GatherParameters).
  if (std::exchange(read_outside_, false)) return;
  whole_->StartGather(0);
  if (const Unit* const unit = first(); unit != nullptr) whole_->StartGather(unit->number);
}

absl::Status Fsdp::GatherParameters(const std::vector<size_t>& parameters) {
  FreeAll();
  read_outside_ = true;
  std::vector<bool> wanted(units_.size());
  for (const size_t parameter : parameters) wanted[unit_of_parameter_[parameter]->number] = true;
  return whole_->GatherValues(wanted);
}

absl::Status Fsdp::VerifyParametersEqual(int64_t step) {
  // Parameters cannot be compared, because each of their elements is on one rank only.
  return CheckModelEqualOnAllRanks({}, buffers_, step, communicators_.gradients);
}

// A forward cannot combine bfloat16 parameters with float32 buffers.
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
  ASSIGN_OR_RETURN(auto plan, PlanUnits(*root, parameters, options.units, options.replicate));
  return std::make_unique<Fsdp>(parameters, buffers, std::move(plan), communicators, options,
                                std::move(kept));
}

}  // namespace muster::parallel
