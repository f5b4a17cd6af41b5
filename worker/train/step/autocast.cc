#include "worker/train/step/autocast.h"

// Declared here, because ATen/autocast_mode.h includes all of ATen.
namespace at::autocast {
void clear_cache();
int increment_nesting();
int decrement_nesting();
}  // namespace at::autocast

namespace muster::train {

AutocastScope::AutocastScope(Precision precision, c10::DeviceType device)
    : active_(precision != Precision::kFloat32), before_(models::AutocastState::Now(device)) {
  if (!active_) return;
  models::AutocastState state = before_;
  state.enabled = true;
  state.type = precision == Precision::kFloat16 ? c10::ScalarType::Half : c10::ScalarType::BFloat16;
  state.Set();
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // Drops the cast weights, because the weights may have other values in the next scope.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.Set();
}

}  // namespace muster::train
