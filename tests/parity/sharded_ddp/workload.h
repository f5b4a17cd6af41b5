// What the parity tests train: models with their data, small, the same in every run.
#ifndef MUSTER_TESTS_PARITY_SHARDED_DDP_WORKLOAD_H_
#define MUSTER_TESTS_PARITY_SHARDED_DDP_WORKLOAD_H_

#include <memory>

#include "ATen/core/Tensor.h"
#include "tests/parity/sharded_ddp/case.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace muster::parity {

struct WorkloadOptions {
  double dropout = 0.1;  // of kGpt2
  // Of the last layer of kMixed. Checkpoints do not hold float64.
  at::ScalarType head = at::kDouble;
};

struct Workload {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<data::Dataset> dataset;
};

// kGpt2, kLlama, kConvnet: as of a job file; the last has BatchNorm's buffers. kMixed has all that
// parameters can be: of odd sizes, frozen, int64, float64, empty, never used, used by some ranks in
// some micro-batches only, and shared: used at two places of a unit that is called twice; and a
// float32 and an int64 buffer.
Workload MakeWorkload(ModelKind kind, const WorkloadOptions& options = {});

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_SHARDED_DDP_WORKLOAD_H_
