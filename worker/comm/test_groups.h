// Groups of ranks for tests, of any implementation: N ranks as N threads.
#ifndef MUSTER_WORKER_COMM_TEST_GROUPS_H_
#define MUSTER_WORKER_COMM_TEST_GROUPS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "c10/core/Device.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

// kStaged: comm/staged over comm/local, with tensors on the CPU. kStagedOnDevice: with tensors on a
// device: on the first GPU with --config=cuda, otherwise on a device of each rank that stands in
// for one (worker/device/stand_in). kNccl: only with --config=cuda.
enum class Implementation { kLocal, kGloo, kStaged, kStagedOnDevice, kNccl };
const char* Name(Implementation implementation);

// The implementations with their world sizes. With --config=cuda only those that need a GPU, which
// the ranks share.
std::vector<std::tuple<Implementation, int>> GroupsToTest();

// Why none of them can run here; empty: they can.
const char* WhyNot();

// Within RunRanks: where the tensors of this thread's rank are.
c10::Device TestDevice();

// Runs `body` on every rank, each in its own thread with its own communicator, which it may destroy
// early; returns when all have ended.
void RunRanks(Implementation implementation, int world_size,
              const std::function<void(std::unique_ptr<Communicator> ranks)>& body,
              std::chrono::milliseconds timeout = std::chrono::minutes(2));

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TEST_GROUPS_H_
