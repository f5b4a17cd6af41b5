// Data parallelism: every rank holds the whole model; gradients are summed over ranks in buckets
// while backward still runs (S. Li et al., "PyTorch Distributed", VLDB 2020).
//
// A step:
//   ddp->BeginStep(step, divisor);
//   for each micro-batch m: ddp->BeginMicroBatch(m is the last); forward; backward;
//   ddp->FinishBackward();                 // now p.grad() is the same on every rank
//   optimizer step
// Gradients are accumulated locally over micro-batches and reduced once, in the last. Afterwards
// p.grad() of every parameter is a view into a flat bucket: (rank-ordered sum over ranks) / divisor.
// A parameter that no micro-batch used has a zero gradient.
// p.grad() is a different tensor in every step: read it when needed, do not keep it.
// Buffers follow the highest rank that is active in the step: FinishBackward leaves its own, as they were
// after its last forward, on every rank (buffer_sync.h). So they are equal on all ranks between steps.
//
// Life cycle: one per generation and plan. It owns the post-accumulate-gradient hook of every
// parameter (autograd has one per tensor); the destructor removes them, and waits for reductions in
// flight. The communicator must outlive it and is used for nothing else while a step runs.
// Threading: one thread, the one that calls backward (for CPU tensors, hooks run in it).
// Errors: those of the communicator; after one, rebuild. Nothing is thrown through autograd.
#ifndef MUSTER_WORKER_PARALLEL_DDP_DDP_H_
#define MUSTER_WORKER_PARALLEL_DDP_DDP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace muster::parallel {

// A trainable leaf: dense float32 or float64 on the CPU, contiguous, requires_grad; all one type.
struct DdpParameter {
  std::string name;
  at::Tensor tensor;
};

// What forwards change without gradients: contiguous, on the CPU, float32 or int64.
struct DdpBuffer {
  std::string name;
  at::Tensor tensor;
};

struct DdpOptions {
  // A bucket is closed once it holds so many bytes; the first one (the end of the model) earlier, so
  // that reduction starts early. Small beside PyTorch's 25 MiB: reductions overlap one another, and
  // what is reduced after the end of backward is one bucket.
  int64_t bucket_bytes = 4 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

class Ddp {
 public:
  // parameters: in forward order, each once, the same on all ranks; buffers too. INVALID_ARGUMENT, with
  // the name, when one does not fit.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(std::vector<DdpParameter> parameters,
                                                     std::vector<DdpBuffer> buffers,
                                                     comm::Communicator* communicator,
                                                     const DdpOptions& options);
  virtual ~Ddp() = default;

  // Drops the last step's gradients (for good: p.grad() is undefined until backward). The sum over ranks is divided by `divisor` (> 0, the same on all
  // ranks); it is needed here because buckets are divided while backward still runs.
  virtual void BeginStep(int64_t step, double divisor) = 0;

  // Before each forward. Reduction starts in the backward of the last micro-batch.
  virtual void BeginMicroBatch(bool last) = 0;

  // After the last backward: reduces what backward did not reach, and waits for all buckets and for the
  // buffers.
  virtual absl::Status FinishBackward() = 0;

  // For a step that is left out: puts the buffers back to what they were at BeginStep. After
  // FinishBackward.
  virtual void RestoreBuffers() = 0;

  // Compares a hash of all parameters and buffers over ranks, bitwise. DATA_LOSS names the ranks that
  // differ and the first parameter or buffer in which they do.
  virtual absl::Status VerifyParametersEqual(int64_t step) = 0;

  // Number of buckets, for reports and tests.
  virtual int64_t bucket_count() const = 0;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_DDP_DDP_H_
