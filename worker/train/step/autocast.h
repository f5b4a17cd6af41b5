// Mixed precision for the forward pass, like Python's `with torch.autocast(device, dtype)`.
#ifndef MUSTER_WORKER_TRAIN_STEP_AUTOCAST_H_
#define MUSTER_WORKER_TRAIN_STEP_AUTOCAST_H_

#include "worker/models/autocast_state.h"
#include "worker/train/job/job.h"

namespace muster::train {

// Runs the forward passes of its thread in `precision` while this object lives. LibTorch's lists
// decide which operations run in bfloat16 or float16 (matrix products and convolutions), and which
// run in float32 because they need its range. Parameters stay float32. Each use casts the
// parameter, and a cache keeps the cast of a weight until the outermost scope ends. With kFloat32
// nothing changes. Do not run the backward pass inside a scope.
//
// Scopes may be nested. Each scope must end on the thread that began it. LibTorch has one cache for
// the whole process, and the end of the outermost scope of any thread empties the cache. With ranks
// as threads, a weight may therefore be cast more than once. This changes the last bits of the
// gradient of a weight that is used twice.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision, c10::DeviceType device = c10::DeviceType::CPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool active_;
  const models::AutocastState before_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_AUTOCAST_H_
