// Runs the ranks of a session as threads, for tests.
#ifndef MUSTER_WORKER_TRAIN_RANKS_RANK_THREADS_H_
#define MUSTER_WORKER_TRAIN_RANKS_RANK_THREADS_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "worker/comm/local/local_group.h"
#include "worker/comm/staged/staged_communicator.h"

namespace muster::train {

// Runs `body` once for each rank, each in a thread of its own. `body` gets the rank's communicators
// of four groups (SessionParts). The communicators for gradients and parameters take tensors on the
// device of this type whose index is the rank. The rank leaves the groups when `body` returns.
// Returns when all threads have ended.
inline void RunRanks(
    int world_size,
    const std::function<void(int rank, comm::Communicator& control, comm::Communicator& gradients,
                             comm::Communicator& parameters, comm::Communicator& files)>& body,
    c10::DeviceType type = c10::kCPU) {
  const auto on_device = [type](int rank, std::unique_ptr<comm::Communicator> host) {
    const c10::Device device(type, static_cast<c10::DeviceIndex>(rank));
    return type == c10::kCPU ? std::move(host) : comm::Staged(std::move(host), {.device = device});
  };
  auto control = comm::LocalGroup::Create(world_size);
  auto gradients = comm::LocalGroup::Create(world_size);
  auto parameters = comm::LocalGroup::Create(world_size);
  auto files = comm::LocalGroup::Create(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto own_control = std::move(control[rank]);
      const auto own_gradients = on_device(rank, std::move(gradients[rank]));
      const auto own_parameters = on_device(rank, std::move(parameters[rank]));
      const auto own_files = std::move(files[rank]);
      body(rank, *own_control, *own_gradients, *own_parameters, *own_files);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same for ranks that write no files.
inline void RunRanks(
    int world_size,
    const std::function<void(int rank, comm::Communicator& control, comm::Communicator& gradients,
                             comm::Communicator& parameters)>& body,
    c10::DeviceType type = c10::kCPU) {
  RunRanks(
      world_size,
      [&body](int rank, comm::Communicator& control, comm::Communicator& gradients,
              comm::Communicator& parameters,
              comm::Communicator&) { body(rank, control, gradients, parameters); },
      type);
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_RANK_THREADS_H_
