#include "worker/parallel/gradients/unused_pieces.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/add.h"
#include "ATen/ops/all.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/fill.h"
#include "ATen/ops/logical_and.h"
#include "ATen/ops/ones.h"
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

UnusedPieces::UnusedPieces(const std::vector<Piece>& pieces, const std::vector<size_t>& trainable,
                           std::function<bool(size_t)> used)
    : pieces_(pieces), used_(std::move(used)), one_(at::ones({})), flags_(pieces.size()) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto found = std::lower_bound(trainable.begin(), trainable.end(), pieces[i].parameter);
    number_.push_back(static_cast<size_t>(found - trainable.begin()));
    if (pieces[i].bucket >= buckets_.size()) buckets_.resize(pieces[i].bucket + 1);
    buckets_[pieces[i].bucket].push_back(i);
  }
}

void UnusedPieces::BeginStep() {
  if (!std::exchange(any_, false)) return;
  for (at::Tensor& flag : flags_) flag.reset();
}

Strategy::BucketReduced UnusedPieces::LookBefore(const Strategy::BucketReduced& reduced) {
  return [this, reduced](size_t bucket) {
    Look(bucket);
    return reduced ? reduced(bucket) : absl::OkStatus();
  };
}

void UnusedPieces::Look(size_t bucket) {
  if (bucket >= buckets_.size()) return;  // this rank has no piece of this or a later bucket
  for (const size_t i : buckets_[bucket]) {
    const at::Tensor& gradient = pieces_[i].tensor.grad();
    if (gradient.is_cpu()) {
      if (IsMarked(gradient)) flags_[i] = one_;
    } else if (!used_(number_[i])) {
      flags_[i] = MarkedOnDevice(gradient);
    }
    any_ = any_ || flags_[i].defined();
  }
}

void Mark(const at::Tensor& flat, int64_t begin, int64_t end) {
  if (begin == end) return;
  const c10::NoGradGuard no_grad;
  flat.narrow(0, begin, end - begin).fill_(-0.0);
}

void CopyUnmarked(const at::Tensor& to, const at::Tensor& from) {
  // Avoids the cost of a dispatch, because models have hundreds of small parameters.
  if (to.is_cpu() && from.is_contiguous() && from.scalar_type() == to.scalar_type() &&
      from.numel() == to.numel()) {
    return to.scalar_type() == at::kDouble ? CopyElements<double>(to, from)
                                           : CopyElements<float>(to, from);
  }
  const c10::NoGradGuard no_grad;
  at::Tensor target = to;
  // A kernel on any device accepts a scalar on the CPU as an argument.
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
