// Communicator over NCCL (https://docs.nvidia.com/deeplearning/nccl), for tensors on GPUs: one GPU
// for each rank.
//
// Operations run on the communicator's own stream. A watching thread asks NCCL for errors. It also
// ends operations that take longer than the timeout, because a rank does not take part or a GPU
// hangs. After an error NCCL's communicator is aborted, which ends the kernels that wait for other
// ranks.
//
// Abort does not tell the peers, unlike in the other communicators. The peers' operations end by an
// error of their connections, or by the timeout.
#ifndef MUSTER_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

struct NcclOptions {
  int rank = 0;
  int world_size = 1;
  // The name of the communicator, unique within one store: "gradients". The same on all ranks.
  std::string name;
  // cuda:N. No other rank may use the same GPU.
  at::Device device = at::Device(at::kCUDA, 0);
  // The longest time that Create waits for all ranks.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);
  // The longest time that an operation may take.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // See GlooOptions::watched.
  std::function<bool()> watched;
  SumOrder order = SumOrder::kFast;
};

// Blocks until all ranks are connected. DEADLINE_EXCEEDED or UNAVAILABLE if the ranks did not
// connect in time, or if NCCL refuses the GPUs (for example because two ranks use the same GPU).
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(const NcclOptions& options,
                                                                     RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_NCCL_NCCL_COMMUNICATOR_H_
