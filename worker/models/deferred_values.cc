#include "worker/models/deferred_values.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"
#include "common/activity/activity.h"
#include "worker/device/memory.h"

namespace muster::models {
namespace {

constinit thread_local DeferredValues* current = nullptr;

at::Tensor WithoutMemory(at::IntArrayRef shape) {
  const at::Tensor tensor = at::empty(shape, at::kFloat);  // touches no page of the memory
  device::ResizeStorage(tensor, 0);
  return tensor;
}

DeferredValues::RangeMaker InRanges(DeferredValues::Maker maker) {
  return [maker = std::move(maker)](int64_t begin, int64_t end) {
    return maker().flatten().slice(0, begin, end);
  };
}

}  // namespace

DeferredValues::Scope::Scope(DeferredValues* values) : before_(std::exchange(current, values)) {}

DeferredValues::Scope::~Scope() { current = before_; }

DeferredValues* DeferredValues::Current() { return current; }

at::Tensor DeferredValues::Add(const std::vector<int64_t>& shape, Maker maker) {
  return AddInRanges(shape, InRanges(std::move(maker)));
}

at::Tensor DeferredValues::AddInRanges(const std::vector<int64_t>& shape, RangeMaker maker) {
  const at::Tensor tensor = WithoutMemory(shape);
  makers_[tensor.unsafeGetTensorImpl()] = std::move(maker);
  return tensor;
}

void DeferredValues::Take(at::Tensor tensor, Maker maker) {
  const c10::NoGradGuard no_grad;
  tensor.set_data(WithoutMemory(tensor.sizes()));
  makers_[tensor.unsafeGetTensorImpl()] = InRanges(std::move(maker));
}

at::Tensor DeferredValues::Of(const at::Tensor& tensor) const {
  if (!Has(tensor)) return tensor.detach();
  return Range(tensor, 0, tensor.numel()).view(tensor.sizes());
}

at::Tensor DeferredValues::Range(const at::Tensor& tensor, int64_t begin, int64_t end) const {
  const auto found = makers_.find(tensor.unsafeGetTensorImpl());
  activity::Moved();
  return found == makers_.end() ? tensor.detach().flatten().slice(0, begin, end)
                                : found->second(begin, end);
}

void DeferredValues::Replace(const at::Tensor& tensor, RangeMaker maker) {
  makers_.at(tensor.unsafeGetTensorImpl()) = std::move(maker);
}

void DeferredValues::Settle(at::Tensor tensor) {
  if (!Has(tensor)) return;
  const c10::NoGradGuard no_grad;
  tensor.set_data(Of(tensor));
  makers_.erase(tensor.unsafeGetTensorImpl());
}

}  // namespace muster::models
