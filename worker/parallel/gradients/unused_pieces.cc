#include "worker/parallel/gradients/unused_pieces.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/ones.h"
#include "worker/parallel/gradients/unused_mark.h"

namespace muster::parallel {

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
  if (bucket >= buckets_.size()) return;  // this rank has no piece of it, nor of the later ones
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

}  // namespace muster::parallel
