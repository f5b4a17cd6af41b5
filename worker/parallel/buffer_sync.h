// Keeps buffers equal on all ranks: all ranks take over the buffers of one rank. Buffers are for
// example BatchNorm's statistics, which the forward of each rank changes differently.
//
// After the last forward of a step, one packed message broadcasts these buffers while backward
// runs. PyTorch's DistributedDataParallel sends the same message at the start of the next step
// (broadcast_buffers=True, once for each window of accumulation). A message at the end of the step
// costs no waiting. The message also makes buffers equal between steps: one state is validated,
// saved and exported.
//
// Without buffers, nothing is done or sent. Threading: see Strategy.
#ifndef MUSTER_WORKER_PARALLEL_BUFFER_SYNC_H_
#define MUSTER_WORKER_PARALLEL_BUFFER_SYNC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

class BufferSync {
 public:
  // The buffers: contiguous, on the communicator's device, of any type; the same on all ranks.
  // Copies of this object share the tensors. `communicator` outlives this object.
  BufferSync(std::vector<at::Tensor> buffers, comm::Communicator* communicator);

  // Starts a step, and copies the values of the buffers for Restore.
  void BeginStep(const StepStart& start);

  // Copies the values that Launch sends. Later forwards of this step change this rank's buffers,
  // but not the values to send.
  void Settle();

  // Starts to send the buffers of start.buffers_from. A collective, after the step's last forward.
  void Launch();

  // Waits for the broadcast that Launch started. Then the buffers have the values of rank
  // start.buffers_from. Errors: the communicator's.
  absl::Status Finish();

  // Gives the buffers the values that they had at BeginStep.
  void Restore();
  // See Strategy::RestoreBuffersIf.
  void RestoreIf(const at::Tensor& skip);

 private:
  void Pack(const at::Tensor& packed) const;
  void Unpack(const at::Tensor& packed) const;

  const std::vector<at::Tensor> buffers_;
  comm::Communicator* const communicator_;
  StepStart start_;
  at::Tensor kept_;       // the bytes of all buffers at BeginStep, one after the other
  at::Tensor sent_;       // the bytes that are sent or received
  bool settled_ = false;  // sent_ has the bytes to send
  std::unique_ptr<comm::Work> work_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_BUFFER_SYNC_H_
