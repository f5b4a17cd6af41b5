// Collectives of tensors on another device, over a communicator for tensors on the CPU.
//
// An operation copies its input to pinned host memory in the device's current stream, so its call
// waits for nothing. A thread waits until the device has come to the end of that copy, and then
// issues the operation on the host: in the order of the calls, as Communicator requires. Wait
// blocks until the operation is done on the host, and then gives the copy of its output to the
// current stream.
#ifndef MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_

#include <chrono>
#include <memory>

#include "ATen/core/Tensor.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

struct StagedOptions {
  // Of all tensors. A device of the CPU copies, too; this is for tests.
  at::Device device = at::kCPU;
  // The longest time that the device may take to come to an operation. After it the operation fails
  // with DEADLINE_EXCEEDED, and all later ones, too.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

std::unique_ptr<Communicator> Staged(std::unique_ptr<Communicator> host,
                                     const StagedOptions& options);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_STAGED_STAGED_COMMUNICATOR_H_
