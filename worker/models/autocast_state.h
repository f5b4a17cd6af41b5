// The autocast state of this thread on the CPU: the functions of ATen/autocast_mode.h, without the
// large part of ATen that this header includes.
#ifndef MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_
#define MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_

#include "c10/core/ScalarType.h"

namespace muster::models {

struct AutocastState {
  bool enabled = false;
  // The converted copy of a weight is kept for further uses in the scope.
  bool keeps_casts = true;
  c10::ScalarType type = c10::ScalarType::BFloat16;

  static AutocastState Now();
  void Set() const;
};

// While it lives, this thread has another autocast state.
class ScopedAutocastState {
 public:
  explicit ScopedAutocastState(const AutocastState& state) : before_(AutocastState::Now()) {
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
