// Models and data for the parity tests: small, and the same in every run.
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
  // The type of the last layer of kMixed. Checkpoints do not hold float64.
  at::ScalarType head = at::kDouble;
};

struct Workload {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<data::Dataset> dataset;
};

// Makes a model with its data:
// - kGpt2, kLlama and kConvnet are as in a job file. kConvnet has BatchNorm's buffers.
// - kMixed has every kind of parameter: of odd sizes, frozen, int64, float64, empty, never used, or
//   used only by some ranks in some micro-batches. A shared parameter is used at two places of a
//   unit that is called twice. There are a float32 and an int64 buffer.
Workload MakeWorkload(ModelKind kind, const WorkloadOptions& options = {});

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_SHARDED_DDP_WORKLOAD_H_
