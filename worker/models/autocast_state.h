// Autocast of this thread on the CPU: what ATen/autocast_mode.h has, without all of ATen that it
// includes.
#ifndef MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_
#define MUSTER_WORKER_MODELS_AUTOCAST_STATE_H_

#include "c10/core/ScalarType.h"

namespace muster::models {

struct AutocastState {
  bool enabled = false;
  // A weight's cast is kept for its other uses in the scope.
  bool keeps_casts = true;
  c10::ScalarType type = c10::ScalarType::BFloat16;

  static AutocastState Now();
  void Set() const;
};

// While it lives, another one.
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
