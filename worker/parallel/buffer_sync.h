// Keeps buffers equal on all ranks (BatchNorm's statistics, which each rank's forward changes in
// its own way): all ranks take over the buffers of one rank.
//
// After the last forward of a step, the buffers of this rank are broadcast in one packed message
// while backward runs, and every rank continues with them. PyTorch's DistributedDataParallel sends
// the same message at the start of the next step (broadcast_buffers=True, once for each window of
// accumulation). Sent at the end of the step, it costs no waiting. And between steps all ranks hold
// the same buffers, so that one state is validated, saved and exported.
//
// Without buffers nothing is done or sent. Threading: as Strategy.
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
  // Copies share the tensors. `communicator` outlives this.
  BufferSync(std::vector<at::Tensor> buffers, comm::Communicator* communicator);

  // Copies the values of the buffers, for Restore.
  void BeginStep(const StepStart& start);

  // Launch sends the values that the buffers have now. Later forwards of this step still change
  // this rank's buffers, but not what is sent.
  void Settle();

  // A collective, after the step's last forward: starts sending the buffers of start.buffers_from.
  void Launch();

  // Waits for the broadcast that Launch started. After it the buffers have the values of that rank.
  // Errors: the communicator's.
  absl::Status Finish();

  // Puts the buffers back to what they were at BeginStep.
  void Restore();
  // Strategy::RestoreBuffersIf.
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
