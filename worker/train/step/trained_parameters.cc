#include "worker/train/step/trained_parameters.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/status/status.h"

namespace muster::train {
namespace {

// The distance of the prefetch, in parameters. Each flag lies in an object of its own, which is
// rarely in a cache.
constexpr size_t kAhead = 16;

// Prefetches the parts of this object of 184 bytes that requires_grad() reads: the beginning, and
// the flag after the first 128 bytes. With another layout FirstFlipped is slower, but still
// correct.
void Prefetch(const c10::AutogradMetaInterface* autograd) {
  const auto* bytes = reinterpret_cast<const char*>(autograd);
  __builtin_prefetch(bytes);
  __builtin_prefetch(bytes + 128);
}

// Sets the flags and drops the gradients of frozen parameters.
void SetFlags(const Mask& mask, const std::vector<models::Parameter>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor tensor = parameters[i].tensor;
    if (tensor.requires_grad() != mask[i]) tensor.requires_grad_(mask[i]);
    if (!mask[i]) tensor.mutable_grad().reset();
  }
}

}  // namespace

Mask FlagsOf(const std::vector<models::Parameter>& parameters) {
  Mask mask;
  mask.reserve(parameters.size());
  for (const auto& parameter : parameters) mask.push_back(parameter.tensor.requires_grad());
  return mask;
}

TrainedParameters::TrainedParameters(std::vector<models::Parameter> tensors,
                                     Trainability trainability)
    : tensors_(std::move(tensors)), trainability_(std::move(trainability)) {
  for (const auto& parameter : tensors_) {
    const at::TensorImpl* const tensor = parameter.tensor.unsafeGetTensorImpl();
    flags_.push_back({tensor, tensor->autograd_meta()});
  }
  Want(trainability_.mask());
  BringIntoForce();
}

absl::StatusOr<std::unique_ptr<TrainedParameters>> TrainedParameters::Create(
    std::vector<models::Parameter> parameters, const std::vector<TrainableRule>& rules) {
  std::vector<Trainability::Parameter> described;
  for (const auto& [name, tensor] : parameters) {
    const bool floating = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
    described.push_back({.name = name,
                         .trained = tensor.requires_grad(),
                         .can_be_trained = floating,
                         .elements = tensor.numel()});
  }
  ASSIGN_OR_RETURN(Trainability trainability, Trainability::Create(std::move(described), rules));
  return std::unique_ptr<TrainedParameters>(
      new TrainedParameters(std::move(parameters), std::move(trainability)));
}

void TrainedParameters::Want(const Mask& mask) {
  wanted_ = mask;
  wanted_hash_ = MaskHash(wanted_);
  first_change_ = FirstDifference(wanted_, in_force_);
}

void TrainedParameters::BringIntoForce() {
  SetFlags(wanted_, tensors_);
  if (pending_.has_value()) {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i] != in_force_[i]) (*pending_)[i] = wanted_[i];
    }
    if (*pending_ == wanted_) pending_.reset();
  }
  in_force_ = wanted_;
  first_change_ = -1;
  any_ = std::find(in_force_.begin(), in_force_.end(), true) != in_force_.end();
}

void TrainedParameters::NameByParameters() {
  if (trainability_.mask() != in_force_) trainability_.Take(in_force_);
}

void TrainedParameters::Restore(int64_t version, const std::vector<TrainableRule>& rules) {
  // Rules that match no parameter belong to another model. The state of another model does not fit
  // either, and its error says more.
  trainability_.Restore(version, rules).IgnoreError();
  Want(trainability_.mask());
}

int64_t TrainedParameters::FirstFlipped() const {
  const size_t count = flags_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) Prefetch(flags_[i + kAhead].autograd);
    const auto& [tensor, autograd] = flags_[i];
    const bool flag = autograd != nullptr ? autograd->requires_grad() : tensor->requires_grad();
    if (flag != in_force_[i]) return static_cast<int64_t>(i);
  }
  return -1;
}

void TrainedParameters::ShowPending() {
  if (pending_.has_value()) SetFlags(*pending_, tensors_);
}

bool TrainedParameters::HoldBack(bool shown) {
  std::optional<Mask> found;
  if (FirstFlipped() >= 0) {
    found = Flags();
    if (!shown && pending_.has_value()) {
      for (size_t i = 0; i < found->size(); ++i) {
        if ((*found)[i] == in_force_[i]) (*found)[i] = (*pending_)[i];
      }
    }
    SetFlags(in_force_, tensors_);
  } else if (!shown) {
    return false;
  }
  const bool news = pending_ != found;
  pending_ = std::move(found);
  return news;
}

std::vector<std::string> TrainedParameters::PendingNames() const {
  std::vector<std::string> names;
  for (size_t i = 0; pending_.has_value() && i < pending_->size(); ++i) {
    if ((*pending_)[i] != in_force_[i]) names.push_back(name(i));
  }
  return names;
}

void TrainedParameters::RestorePending(const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::set<std::string> pending(names.begin(), names.end());
  pending_ = in_force_;
  for (size_t i = 0; i < pending_->size(); ++i) {
    if (pending.contains(name(i))) (*pending_)[i] = !(*pending_)[i];
  }
}

Mask TrainedParameters::TakePending() {
  return std::exchange(pending_, std::nullopt).value_or(in_force_);
}

}  // namespace muster::train
