#include "common/lease/lease.h"

#include <algorithm>

namespace muster {

void Lease::Welcomed(const LeaseTerms& terms, absl::Time sent) {
  terms_ = terms;
  attached_ = true;
  answered_ = std::max(answered_, sent);
  newest_ = 0;
  sent_.clear();
}

uint64_t Lease::Beat(absl::Time now) {
  if (!attached_) return 0;
  sent_.emplace_back(++newest_, now);
  return newest_;
}

void Lease::Acked(uint64_t sequence) {
  while (!sent_.empty() && sent_.front().first <= sequence) {
    answered_ = std::max(answered_, sent_.front().second);
    sent_.pop_front();
  }
}

void Lease::Broken() {
  attached_ = false;
  sent_.clear();
}

void Lease::Refused(absl::Time begun) { refused_ = std::max(refused_, begun); }

absl::Time Lease::End() const {
  if (!terms_.has_value()) return WithoutRefusals();
  const absl::Duration held = terms_->lease - terms_->margin;
  return std::max(WithoutRefusals(), std::min(refused_ + held, answered_ + terms_->autonomy));
}

absl::Time Lease::WithoutRefusals() const {
  if (!terms_.has_value()) return absl::InfiniteFuture();
  return answered_ + terms_->lease - terms_->margin;
}

absl::Time Lease::SilentFrom() const {
  if (!attached_) return absl::InfiniteFuture();
  return answered_ + terms_->lease / 2;
}

}  // namespace muster
