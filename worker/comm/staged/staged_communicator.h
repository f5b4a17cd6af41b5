// Collectives of tensors on a device, over a communicator for tensors on the CPU.
//
// An operation copies its input to pinned host memory on the device's current stream, so the call
// waits for nothing. A thread waits until the device has done that copy, and then issues the
// operation on the host, in the order of the calls. Wait blocks until the operation is done on the
// host. Then Wait gives the copy of the output to the current stream.
#ifndef MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_

#include <chrono>
#include <memory>

#include "ATen/core/Tensor.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

struct StagedOptions {
  // The device of all tensors. Tests may use the CPU, which copies, too.
  at::Device device = at::kCPU;
  // The longest time that the device may take to reach an operation. A longer time fails this
  // operation and all later ones with DEADLINE_EXCEEDED.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

std::unique_ptr<Communicator> Staged(std::unique_ptr<Communicator> host,
                                     const StagedOptions& options);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_
