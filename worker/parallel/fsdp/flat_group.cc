#include "worker/parallel/fsdp/flat_group.h"

#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

using memory::MemoryScope;
using memory::Purpose;

}  // namespace

FlatGroup::FlatGroup(const std::vector<models::Parameter>& parameters,
                     const std::vector<size_t>& indices,
                     const std::vector<layout::ParameterSpec>& specs, const layout::Group& group,
                     const Options& options, comm::Communicator* communicator, std::string label)
    : communicator_(communicator),
      resident_(options.resident),
      label_(std::move(label)),
      group_(group) {
  const c10::NoGradGuard no_grad;
  slice_ = options.slice.defined() ? options.slice : CopySlice(parameters, indices, specs, options);
  for (const layout::Group::Member& member : group.members) {
    tensors_.push_back(parameters[indices[member.parameter]].tensor);
  }
  const MemoryScope scope(Purpose::kGathered);
  const bool round = options.in_bfloat16 && slice_.scalar_type() == at::kFloat;
  flat_ = at::empty({group.elements},
                    slice_.options().dtype(round ? at::kBFloat16 : slice_.scalar_type()));
  whole_bytes_ = static_cast<int64_t>(flat_.nbytes());
  views_ = ViewsOf(flat_);
  Show(views_);
  Resize(0);
}

at::Tensor FlatGroup::CopySlice(const std::vector<models::Parameter>& parameters,
                                const std::vector<size_t>& indices,
                                const std::vector<layout::ParameterSpec>& specs,
                                const Options& options) const {
  const MemoryScope scope(Purpose::kParameters);
  const int world_size = communicator_->world_size();
  const at::Tensor slice =
      at::zeros({layout::SliceElements(group_, world_size)},
                at::TensorOptions(ScalarTypeOf(group_.type)).device(communicator_->device()));
  const int64_t size = slice.element_size();
  for (const sharding::Range& range :
       layout::RangesOf(group_, specs, communicator_->rank(), world_size)) {
    const at::Tensor& tensor = parameters[indices[range.parameter]].tensor;
    const at::Tensor from =
        options.values ? options.values(tensor, range.begin, range.end) : tensor;
    if (!from.defined()) continue;
    device::CopyBytes(slice, range.offset * size, from, options.values ? 0 : range.begin * size,
                      (range.end - range.begin) * size);
  }
  return slice;
}

FlatGroup::~FlatGroup() {
  if (flat_.scalar_type() == slice_.scalar_type()) return;
  if (work_ != nullptr) work_.reset();  // waits for the gather in flight
  const MemoryScope scope(Purpose::kGathered);
  const at::Tensor flat = at::empty({group_.elements}, slice_.options());
  Show(ViewsOf(flat));
  device::ResizeStorage(flat, 0);
}

std::vector<at::Tensor> FlatGroup::ViewsOf(const at::Tensor& flat) const {
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    views.push_back(flat.narrow(0, group_.members[i].offset, tensor.numel()).view(tensor.sizes()));
  }
  return views;
}

void FlatGroup::Show(const std::vector<at::Tensor>& views) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].set_data(views[i]);
}

void FlatGroup::Resize(int64_t bytes) {
  const MemoryScope scope(Purpose::kGathered);
  device::ResizeStorage(flat_, bytes);
  whole_ = bytes > 0;
}

int64_t FlatGroup::Gather(int64_t step) {
  if (whole_) return 0;
  Resize(whole_bytes_);
  StartGather(step);
  return whole_bytes_;
}

void FlatGroup::GatherAgain(int64_t step) {
  if (whole_) StartGather(step);
}

void FlatGroup::StartGather(int64_t step) {
  at::Tensor own = slice_;
  if (flat_.scalar_type() != slice_.scalar_type()) {
    const c10::NoGradGuard no_grad;
    const MemoryScope scope(Purpose::kGathered);
    own = slice_.to(flat_.scalar_type());
  }
  work_ = communicator_->AllGather(flat_, own, {label_.c_str(), step});
}

absl::Status FlatGroup::Await() {
  if (work_ == nullptr) return absl::OkStatus();
  const absl::Status status = work_->Wait();
  work_.reset();
  // After a failed gather the communicator may still write to the memory.
  failed_ |= !status.ok();
  return status;
}

int64_t FlatGroup::Free() {
  if (!whole_ || resident_) return 0;
  if (!Await().ok() || failed_) return 0;
  Resize(0);
  return whole_bytes_;
}

absl::Status FlatGroup::GatherValues(int64_t step) {
  if (values_.defined()) return absl::OkStatus();
  {
    const MemoryScope scope(Purpose::kGathered);
    values_ = at::empty({group_.elements}, slice_.options());
  }
  const absl::Status status =
      communicator_->AllGather(values_, slice_, {label_.c_str(), step})->Wait();
  if (!status.ok()) {
    values_.reset();  // so that ReleaseValues does not copy missing values to the slice
    return status;
  }
  Show(ViewsOf(values_));
  return absl::OkStatus();
}

void FlatGroup::ReleaseValues() {
  if (!values_.defined()) return;
  const c10::NoGradGuard no_grad;
  slice_.copy_(values_.narrow(0, communicator_->rank() * slice_.numel(), slice_.numel()));
  if (whole_) flat_.copy_(values_);  // a resident whole must have the new values
  Show(views_);
  values_.reset();
}

}  // namespace muster::parallel
