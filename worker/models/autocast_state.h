// The autocast state of this thread on a device. Replaces the functions of ATen/autocast_mode.h,
// which includes a large part of ATen.
#ifndef MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_
#define MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_

#include "c10/core/DeviceType.h"
#include "c10/core/ScalarType.h"

namespace muster::models {

struct AutocastState {
  bool enabled = false;
  // Keeps the converted copy of a weight for further uses in the scope.
  bool keeps_casts = true;
  c10::ScalarType type = c10::ScalarType::BFloat16;

  c10::DeviceType device = c10::DeviceType::CPU;

  static AutocastState Now(c10::DeviceType device);
  void Set() const;
};

// Gives this thread another autocast state during the life of the object.
class ScopedAutocastState {
 public:
  explicit ScopedAutocastState(const AutocastState& state)
      : before_(AutocastState::Now(state.device)) {
    state.Set();
  }
  ~ScopedAutocastState() { before_.Set(); }
  ScopedAutocastState(const ScopedAutocastState&) = delete;
  ScopedAutocastState& operator=(const ScopedAutocastState&) = delete;

 private:
  const AutocastState before_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_
