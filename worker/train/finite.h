// The loss of a step is computed before its update, so a finite loss says nothing of the parameters after it.
#ifndef MUSTER_WORKER_TRAIN_FINITE_H_
#define MUSTER_WORKER_TRAIN_FINITE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/models/model.h"

namespace muster::train {

// OUT_OF_RANGE naming the first parameter or buffer with a value that is not finite. Asked before weights are
// kept.
absl::Status CheckFinite(const models::Model& model, int64_t step);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_FINITE_H_
