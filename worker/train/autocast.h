// Mixed precision for the forward, as Python's `with torch.autocast("cpu", dtype)`.
#ifndef MUSTER_WORKER_TRAIN_AUTOCAST_H_
#define MUSTER_WORKER_TRAIN_AUTOCAST_H_

#include "worker/models/autocast_state.h"
#include "worker/train/job.h"

namespace muster::train {

// While it lives, forwards of this thread run in `precision`: matrix products and convolutions in
// bfloat16 or float16, what needs the range in float32, by LibTorch's own lists; parameters stay
// float32 and are cast where they are used, a weight once per scope. kFloat32: nothing happens.
// Backward belongs outside. Scopes may nest. Each ends on the thread that began it. LibTorch keeps
// the casts for the whole process, and the end of any thread's outermost scope drops them all:
// where ranks are threads, a weight may be cast more than once, which changes last bits of the
// gradient of one that is used twice.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool active_;
  const models::AutocastState before_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_AUTOCAST_H_
