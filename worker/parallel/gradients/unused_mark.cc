#include "worker/parallel/gradients/unused_mark.h"

#include "ATen/ops/add.h"
#include "ATen/ops/all.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/fill.h"
#include "ATen/ops/logical_and.h"
#include "ATen/ops/signbit.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "worker/device/host_values.h"
#include "worker/parallel/gradients/negative_zeros.h"

namespace muster::parallel {
namespace {

template <typename T>
void CopyElements(const at::Tensor& to, const at::Tensor& from) {
  CopyWithoutNegativeZeros(device::HostValues<T>(from).data(),
                           device::MutableHostValues<T>(to).data(), to.numel());
}

template <typename T>
bool AllMarked(const at::Tensor& gradient) {
  return AllNegativeZeros(device::HostValues<T>(gradient).data(), gradient.numel());
}

}  // namespace

void Mark(const at::Tensor& flat, int64_t begin, int64_t end) {
  if (begin == end) return;
  const c10::NoGradGuard no_grad;
  flat.narrow(0, begin, end - begin).fill_(-0.0);
}

void CopyUnmarked(const at::Tensor& to, const at::Tensor& from) {
  // Without the cost of a dispatch, because models have hundreds of small parameters.
  if (to.is_cpu() && from.is_contiguous() && from.scalar_type() == to.scalar_type() &&
      from.numel() == to.numel()) {
    return to.scalar_type() == at::kDouble ? CopyElements<double>(to, from)
                                           : CopyElements<float>(to, from);
  }
  const c10::NoGradGuard no_grad;
  at::Tensor target = to;
  // A scalar on the CPU is an argument of a kernel on any device.
  at::add_out(target, from, at::zeros({}, at::TensorOptions(to.scalar_type())));
}

bool IsMarked(const at::Tensor& gradient) {
  if (gradient.numel() == 0) return false;
  return gradient.scalar_type() == at::kDouble ? AllMarked<double>(gradient)
                                               : AllMarked<float>(gradient);
}

at::Tensor MarkedOnDevice(const at::Tensor& gradient) {
  const c10::NoGradGuard no_grad;
  if (gradient.numel() == 0) {
    return at::zeros({}, at::TensorOptions(at::kFloat).device(gradient.device()));
  }
  return gradient.eq(0).logical_and_(gradient.signbit()).all().to(at::kFloat);
}

}  // namespace muster::parallel
