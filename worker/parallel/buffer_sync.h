// One rank's buffers for all ranks (BatchNorm's statistics, which every rank's forward changes on
// its own).
//
// Once a step's last forward is done, the buffers of one rank are broadcast in one packed message
// while backward runs, and every rank goes on with them. PyTorch's DistributedDataParallel sends
// the same message at the start of the next step (broadcast_buffers=True, once for each window of
// accumulation); sent at the end of this one, it costs no waiting, and between steps all ranks hold
// the same buffers: what is validated, saved and exported is one state.
//
// Without buffers nothing is done or sent. Threading: that of Strategy.
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
  // The buffers: contiguous, on the CPU, of any type; the same on all ranks. Copies share the
  // tensors. `communicator` outlives this.
  BufferSync(std::vector<at::Tensor> buffers, comm::Communicator* communicator);

  // Keeps what the buffers are, for Restore.
  void BeginStep(const StepStart& start);

  // What the buffers are now is what Launch sends: later forwards of this step are nothing to the
  // other ranks.
  void Settle();

  // A collective, after the step's last forward: starts sending the buffers of start.buffers_from.
  void Launch();

  // Waits for what was launched; the buffers are that rank's then. Errors: the communicator's.
  absl::Status Finish();

  // Puts the buffers back to what they were at BeginStep.
  void Restore();

 private:
  void Pack(const at::Tensor& packed) const;
  void Unpack(const at::Tensor& packed) const;

  const std::vector<at::Tensor> buffers_;
  comm::Communicator* const communicator_;
  StepStart start_;
  at::Tensor kept_;  // bytes of all buffers, end to end
  at::Tensor sent_;
  bool settled_ = false;  // sent_ has what is to be sent
  std::unique_ptr<comm::Work> work_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_BUFFER_SYNC_H_
