#include "worker/parallel/gradients/gradient_buckets.h"

#include <memory>
#include <unordered_set>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "common/status/status.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/gradients/unused_pieces.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

void ZeroElements(const at::Tensor& flat, int64_t begin, int64_t end) {
  device::ZeroBytes(flat, begin * flat.element_size(), end * flat.element_size());
}

}  // namespace

struct GradientBuckets::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientBuckets* buckets, size_t index) : buckets(buckets), index(index) {}
  void operator()(const at::Tensor&) override { buckets->Arrived(index); }
  GradientBuckets* const buckets;
  const size_t index;
};

GradientBuckets::GradientBuckets(std::vector<models::Parameter> parameters,
                                 std::vector<layout::Group> groups, Memory memory,
                                 Complete complete, std::string who)
    : memory_(memory), complete_(std::move(complete)), who_(std::move(who)) {
  for (models::Parameter& parameter : parameters) {
    parameters_.push_back({.parameter = std::move(parameter)});
  }
  for (layout::Group& group : groups) {
    for (const layout::Group::Member& member : group.members) {
      parameters_[member.parameter].bucket = buckets_.size();
      parameters_[member.parameter].offset = member.offset;
    }
    buckets_.push_back({.group = std::move(group)});
    if (memory_ == Memory::kKept) Allocate(buckets_.back());
  }
  StartOver();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].parameter.tensor,
                                                   std::make_unique<Hook>(this, i));
  }
}

GradientBuckets::~GradientBuckets() {
  for (Parameter& state : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(state.parameter.tensor, nullptr);
    state.parameter.tensor.mutable_grad().reset();
  }
}

void GradientBuckets::Allocate(Bucket& bucket) {
  const memory::MemoryScope scope(memory::Purpose::kBuckets);
  const at::Tensor& first = parameters_[bucket.group.members.front().parameter].parameter.tensor;
  bucket.flat =
      at::empty({bucket.group.elements},
                at::TensorOptions(ScalarTypeOf(bucket.group.type)).device(first.device()));
  int64_t end = 0;
  for (const layout::Group::Member& member : bucket.group.members) {
    Parameter& state = parameters_[member.parameter];
    const at::Tensor& tensor = state.parameter.tensor;
    ZeroElements(bucket.flat, end, member.offset);
    state.view = bucket.flat.narrow(0, member.offset, tensor.numel()).view(tensor.sizes());
    end = member.offset + tensor.numel();
  }
  ZeroElements(bucket.flat, end, bucket.group.elements);
}

void GradientBuckets::BeginStep(int64_t step) {
  step_ = step;
  error_ = absl::OkStatus();
  completes_ = false;
  gradients_ = Gradients::kCount;
  for (Parameter& state : parameters_) state.used = false;
  StartOver();
}

void GradientBuckets::BeginPass(bool completes, Gradients gradients) {
  // The pass before completed the buckets, so this pass starts with empty buckets.
  if (completes_) {
    StartOver();
  } else if (gradients_ == Gradients::kDropped && gradients == Gradients::kCount && error_.ok()) {
    error_ = absl::FailedPreconditionError(
        absl::StrCat(who_, ": step ", step_, ": a micro-batch with input after one without"));
  }
  completes_ = completes;
  gradients_ = gradients;
  for (Parameter& state : parameters_) {
    state.expected = state.arrived = 0;
    // Without this, autograd would add dropped gradients to the sums of earlier passes.
    if (gradients == Gradients::kDropped) state.parameter.tensor.mutable_grad().reset();
  }
}

void GradientBuckets::StartOver() {
  next_ = 0;
  for (Parameter& state : parameters_) {
    // Autograd sets an undefined grad() to the new gradient and adds nothing.
    state.parameter.tensor.mutable_grad().reset();
    state.in_bucket = state.ready = false;
  }
  for (Bucket& bucket : buckets_) bucket.pending = static_cast<int>(bucket.group.members.size());
}

void GradientBuckets::Arrived(size_t index) {
  if (!error_.ok()) return;
  Parameter& state = parameters_[index];
  if (state.ready) {
    error_ = absl::FailedPreconditionError(
        absl::StrCat(who_, ": step ", step_, ": parameter '", state.parameter.name,
                     "' got another gradient in one backward, after its bucket was counted ready"));
    return;
  }
  Guarded(state, [&] {
    const bool dropped = gradients_ == Gradients::kDropped;
    if (dropped) {
      state.parameter.tensor.mutable_grad().reset();
    } else {
      state.used = true;
      MoveIntoBucket(state);
    }
    if (completes_ && ++state.arrived >= state.expected) {
      if (dropped) SettleInBucket(state);
      MarkReady(state);
      HandOver();
    }
  });
}

void GradientBuckets::Close(size_t number) {
  if (!completes_ || !error_.ok()) return;
  Bucket& bucket = buckets_[number];
  if (bucket.pending == 0) return;
  Guarded(parameters_[bucket.group.members.front().parameter], [&] {
    MarkAllReady(bucket);
    HandOver();
  });
}

template <typename Action>
void GradientBuckets::Guarded(const Parameter& state, const Action& action) {
  const auto failed = [&](const char* what) {
    error_ = absl::InternalError(
        absl::StrCat(who_, ": step ", step_, ": gradient of '", state.parameter.name, "': ", what));
  };
  try {
    action();
  } catch (const c10::Error& error) {
    failed(error.what_without_backtrace());
  } catch (const std::exception& exception) {
    failed(exception.what());
  }
}

void GradientBuckets::MoveIntoBucket(Parameter& state) {
  at::Tensor& gradient = state.parameter.tensor.mutable_grad();
  if (!buckets_[state.bucket].flat.defined()) Allocate(buckets_[state.bucket]);
  if (gradient.is_same(state.view)) return;  // the gradient was accumulated in place
  CopyUnmarked(state.view, gradient);
  gradient = state.view;
  state.in_bucket = true;
}

void GradientBuckets::SettleInBucket(Parameter& state) {
  Bucket& bucket = buckets_[state.bucket];
  if (!bucket.flat.defined()) Allocate(bucket);
  if (!state.in_bucket) {
    Mark(bucket.flat, state.offset, state.offset + state.parameter.tensor.numel());
  }
  state.parameter.tensor.mutable_grad() = state.view;
}

void GradientBuckets::MarkReady(Parameter& state) {
  state.ready = true;
  --buckets_[state.bucket].pending;
}

void GradientBuckets::MarkAllReady(Bucket& bucket) {
  for (const layout::Group::Member& member : bucket.group.members) {
    Parameter& state = parameters_[member.parameter];
    if (state.ready) continue;
    SettleInBucket(state);  // perhaps no micro-batch used the parameter
    MarkReady(state);
  }
}

void GradientBuckets::HandOver() {
  while (next_ < buckets_.size() && buckets_[next_].pending == 0) {
    const size_t number = next_++;
    Bucket& bucket = buckets_[number];
    if (memory_ == Memory::kKept) {
      complete_(number, bucket.flat);
      continue;
    }
    for (const layout::Group::Member& member : bucket.group.members) {
      Parameter& state = parameters_[member.parameter];
      state.parameter.tensor.mutable_grad().reset();
      state.view.reset();
    }
    complete_(number, std::exchange(bucket.flat, {}));
  }
}

absl::Status GradientBuckets::Finish() {
  RETURN_IF_ERROR(error_);
  // One bucket at a time: only as many buckets have memory as the receiver holds.
  for (Bucket& bucket : buckets_) {
    MarkAllReady(bucket);
    HandOver();
  }
  return error_;
}

GradientPaths::GradientPaths(const std::vector<models::Parameter>& trainable,
                             std::function<void(size_t parameter)> expect,
                             std::function<void()> before_recomputation)
    : expect_(std::move(expect)),
      before_recomputation_(std::move(before_recomputation)),
      directly_(trainable.size()) {
  for (size_t i = 0; i < trainable.size(); ++i) {
    index_of_[trainable[i].tensor.unsafeGetTensorImpl()] = i;
  }
}

void GradientPaths::BeginPass() { directly_.assign(directly_.size(), false); }

void GradientPaths::Used(const models::Unit& unit, bool recomputed) {
  std::unordered_set<size_t> told;
  for (const auto& [name, tensor] : recomputed ? unit.Parameters() : unit.own_parameters()) {
    const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
    if (found == index_of_.end()) continue;  // frozen
    const size_t index = found->second;
    if (recomputed && !told.insert(index).second) continue;
    if (!recomputed) {
      if (directly_[index]) continue;
      directly_[index] = true;
    }
    expect_(index);
  }
}

}  // namespace muster::parallel
