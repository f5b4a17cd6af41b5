#include "worker/train/autocast.h"

#include <c10/core/DeviceType.h>

// As in ATen/autocast_mode.h, which includes all of ATen.
namespace at::autocast {
bool is_autocast_enabled(c10::DeviceType device);
void set_autocast_enabled(c10::DeviceType device, bool enabled);
c10::ScalarType get_autocast_dtype(c10::DeviceType device);
void set_autocast_dtype(c10::DeviceType device, c10::ScalarType type);
void clear_cache();
int increment_nesting();
int decrement_nesting();
}  // namespace at::autocast

namespace muster::train {

AutocastScope::AutocastScope(Precision precision) : active_(precision != Precision::kFloat32) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(c10::DeviceType::CPU);
  type_before_ = at::autocast::get_autocast_dtype(c10::DeviceType::CPU);
  at::autocast::set_autocast_enabled(c10::DeviceType::CPU, true);
  at::autocast::set_autocast_dtype(c10::DeviceType::CPU, precision == Precision::kFloat16
                                                             ? c10::ScalarType::Half
                                                             : c10::ScalarType::BFloat16);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // The cast weights die with the scope: the next one may see other values.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(c10::DeviceType::CPU, enabled_before_);
  at::autocast::set_autocast_dtype(c10::DeviceType::CPU, type_before_);
}

}  // namespace muster::train
