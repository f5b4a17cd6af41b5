#include "worker/parallel/fsdp/unit_calls.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/custom_function.h"
#include "worker/models/autocast_state.h"

namespace muster::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The limit of whole units, except the root and units that stay whole: the unit that runs and the
// unit that is gathered ahead.
constexpr int kMostInFlight = 2;

// Returns the tensors, converted from one type to another; tensors of other types stay as they are.
models::Tensors Converted(models::Tensors tensors, at::ScalarType from, at::ScalarType to) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == from) tensor = tensor.to(to);
  }
  return tensors;
}

}  // namespace

class UnitCalls::Context : public models::ForwardContext {
 public:
  Context(models::Mode mode, at::Generator generator, UnitCalls* calls)
      : models::ForwardContext(mode, std::move(generator)), calls_(calls) {}
  bool collective() const override { return true; }
  models::Tensors CallMany(models::Unit& unit, const models::Tensors& inputs) override {
    // A unit that is recomputed reads its parameters again in backward.
    const bool backward_reads = recomputes(unit) || unit.BackwardReadsParameters(inputs);
    return calls_->Run(unit, inputs, backward_reads, [&](const models::Tensors& all) {
      return models::ForwardContext::CallMany(unit, all);
    });
  }

 private:
  UnitCalls* const calls_;
};

// The identity function. Its backward calls AfterBackward.
struct UnitCalls::Observed : torch::autograd::Function<UnitCalls::Observed> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, int64_t calls,
                               int64_t call) {
    context->saved_data["calls"] = calls;
    context->saved_data["call"] = call;
    // An unused input gets no gradient instead of zeros.
    context->set_materialize_grads(false);
    return inputs.vec();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    reinterpret_cast<UnitCalls*>(context->saved_data["calls"].toInt())
        ->AfterBackward(context->saved_data["call"].toInt());
    gradients.resize(gradients.size() + 2);  // no gradients for the object and the call
    return gradients;
  }
};

UnitCalls::UnitCalls(const std::vector<PlannedUnit>& plan,
                     const std::vector<size_t>& units_of_groups, const FsdpOptions& options,
                     c10::DeviceType device, WholeUnits* whole, SlicedGradients* gradients)
    : reshard_after_forward_(options.reshard_after_forward),
      in_bfloat16_(options.parameters_in_bfloat16),
      device_(device),
      whole_(whole),
      gradients_(gradients),
      units_(plan.size()) {
  for (size_t i = 0; i < plan.size(); ++i) {
    units_[i].number = i;
    unit_of_[plan[i].unit] = &units_[i];
  }
  for (size_t group = 0; group < units_of_groups.size(); ++group) {
    units_[units_of_groups[group]].trainable.push_back(group);
  }
}

std::unique_ptr<models::ForwardContext> UnitCalls::MakeContext(models::Mode mode,
                                                               at::Generator generator) {
  return std::make_unique<Context>(mode, std::move(generator), this);
}

void UnitCalls::ForgetCalls() {
  for (UnitState& unit : units_) {
    unit.running = unit.backwards = unit.open = 0;
    unit.unobserved = false;
  }
  calls_.clear();
}

void UnitCalls::FreeAll() {
  ForgetCalls();
  whole_->FreeAll();
}

void UnitCalls::FreeAfterPass() {
  ForgetCalls();
  for (const UnitState& unit : units_) {
    if (unit.number != 0 && &unit != first()) whole_->Free(unit.number);
  }
}

void UnitCalls::GatherAhead() {
  whole_->StartGather(0);
  if (const UnitState* const unit = first(); unit != nullptr) whole_->StartGather(unit->number);
}

void UnitCalls::AwaitWhole(const UnitState& unit) {
  const absl::Status status = whole_->Await(unit.number);
  if (!status.ok()) throw models::ContextError(status);
}

void UnitCalls::Prefetch(const UnitState& unit) {
  if (whole_->below_root() < kMostInFlight || !reshard_after_forward_) {
    whole_->StartGather(unit.number);
  }
}

void UnitCalls::PrefetchAfter(const UnitState& unit) {
  const size_t position = current_order_.size();  // of the unit that runs after `unit`
  if (position >= order_.size() || order_[position - 1] != &unit) return;
  Prefetch(*order_[position]);
}

models::Tensors UnitCalls::Run(models::Unit& model_unit, const models::Tensors& inputs,
                               bool backward_reads, const Forward& forward) {
  const auto found = unit_of_.find(&model_unit);
  if (found == unit_of_.end()) return forward(inputs);
  UnitState& unit = *found->second;
  return unit.number == 0 ? RunRoot(unit, inputs, forward)
                          : RunUnit(unit, model_unit.name(), inputs, backward_reads, forward);
}

void UnitCalls::BeginForward(UnitState& unit) {
  current_order_.push_back(&unit);
  AwaitWhole(unit);
  PrefetchAfter(unit);
  whole_->Trace(unit.number, UnitEvent::Kind::kForward);
}

models::Tensors UnitCalls::RunRoot(UnitState& root, const models::Tensors& inputs,
                                   const Forward& forward) {
  order_ = std::exchange(current_order_, {});
  BeginForward(root);
  // Autocast's cache would keep copies of parameters after their unit is freed.
  models::AutocastState autocast = models::AutocastState::Now(device_);
  autocast.keeps_casts = false;
  const models::ScopedAutocastState without_kept_casts(autocast);
  // The root is not freed: the loss may read the root's parameters, and backward needs them.
  if (!in_bfloat16_) return forward(inputs);
  return Converted(forward(Converted(inputs, at::kFloat, at::kBFloat16)), at::kBFloat16,
                   at::kFloat);
}

models::Tensors UnitCalls::RunUnit(UnitState& unit, const std::string& name,
                                   const models::Tensors& inputs, bool backward_reads,
                                   const Forward& forward) {
  const bool wanted = backward_reads && c10::GradMode::is_enabled();
  BeginForward(unit);
  const auto call = static_cast<int64_t>(calls_.size());
  if (!wanted) unit.unobserved = true;
  if (wanted) calls_.push_back({&unit});
  ++unit.running;
  models::Tensors outputs = forward(wanted ? ObserveInputs(inputs, call) : inputs);
  --unit.running;
  for (const at::Tensor& y : outputs) {
    if (y.requires_grad() && y.is_leaf()) {
      throw models::ModelError(absl::StrCat("unit '", name,
                                            "' returns a parameter: its memory is freed after the ",
                                            "forward; return a copy"));
    }
  }
  if (wanted && ObserveOutputs(outputs, call) > 0) {
    calls_[call].backward = true;
    ++unit.backwards;
  }
  const bool stays =
      whole_->stay_whole() || unit.running > 0 || (unit.backwards > 0 && !reshard_after_forward_);
  if (!stays) whole_->Free(unit.number);
  return outputs;
}

models::Tensors UnitCalls::ObserveInputs(const models::Tensors& inputs, int64_t call) {
  models::Tensors observed;
  for (const at::Tensor& x : inputs) {
    if (x.requires_grad()) observed.push_back(x);
  }
  if (observed.empty()) return inputs;
  observed = Observed::apply(at::TensorList(observed), reinterpret_cast<int64_t>(this), call);
  models::Tensors all = inputs;
  auto next = observed.begin();
  for (at::Tensor& x : all) {
    if (x.requires_grad()) x = *next++;
  }
  return all;
}

int UnitCalls::ObserveOutputs(const models::Tensors& outputs, int64_t call) {
  int observed = 0;
  for (const at::Tensor& y : outputs) {
    if (!y.requires_grad()) continue;
    y.register_hook([this, call](const at::TensorBase&) { BeforeBackward(call); });
    ++observed;
  }
  return observed;
}

void UnitCalls::BeforeBackward(int64_t call) {
  UnitState& unit = *calls_[call].unit;
  AwaitWhole(unit);
  if (std::exchange(calls_[call].begun, true)) return;  // at another output of the call
  ++unit.open;
  for (int64_t before = call; before-- > 0;) {
    if (!calls_[before].backward || calls_[before].unit == &unit) continue;
    Prefetch(*calls_[before].unit);
    break;
  }
  whole_->Trace(unit.number, UnitEvent::Kind::kBeforeBackward);
}

void UnitCalls::AfterBackward(int64_t call) {
  UnitState& unit = *calls_[call].unit;
  whole_->Trace(unit.number, UnitEvent::Kind::kAfterBackward);
  calls_[call].backward = false;
  --unit.open;
  --unit.backwards;
  if (unit.open == 0 && (reshard_after_forward_ || unit.backwards == 0)) {
    whole_->Free(unit.number);
  }
  if (unit.backwards > 0 || unit.unobserved) return;
  for (const size_t group : unit.trainable) gradients_->Close(group);
}

}  // namespace muster::parallel
