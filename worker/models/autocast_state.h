// The autocast state of this thread on a device: the functions of ATen/autocast_mode.h, without the
// large part of ATen that this header includes.
#ifndef MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_
#define MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_

#include "c10/core/DeviceType.h"
#include "c10/core/ScalarType.h"

namespace muster::models {

struct AutocastState {
  bool enabled = false;
  // The converted copy of a weight is kept for further uses in the scope.
  bool keeps_casts = true;
  c10::ScalarType type = c10::ScalarType::BFloat16;

  c10::DeviceType device = c10::DeviceType::CPU;

  static AutocastState Now(c10::DeviceType device);
  void Set() const;
};

// While it lives, this thread has another autocast state.
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
