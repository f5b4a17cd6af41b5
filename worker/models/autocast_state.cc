#include "worker/models/autocast_state.h"

namespace at::autocast {
bool is_autocast_enabled(c10::DeviceType device);
void set_autocast_enabled(c10::DeviceType device, bool enabled);
c10::ScalarType get_autocast_dtype(c10::DeviceType device);
void set_autocast_dtype(c10::DeviceType device, c10::ScalarType type);
bool is_autocast_cache_enabled();
void set_autocast_cache_enabled(bool enabled);
}  // namespace at::autocast

namespace muster::models {

AutocastState AutocastState::Now(c10::DeviceType device) {
  return {.enabled = at::autocast::is_autocast_enabled(device),
          .keeps_casts = at::autocast::is_autocast_cache_enabled(),
          .type = at::autocast::get_autocast_dtype(device),
          .device = device};
}

void AutocastState::Set() const {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_cache_enabled(keeps_casts);
  at::autocast::set_autocast_dtype(device, type);
}

}  // namespace muster::models
