// Groups of N ranks as N threads, of any implementation, for tests.
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

// The implementations of Communicator.
// - kStaged: comm/staged over comm/local, with tensors on the CPU.
// - kStagedOnDevice: comm/staged with tensors on a device. The device is the first GPU with
//   --config=cuda, otherwise a stand-in device for each rank (worker/device/stand_in).
// - kNccl: only with --config=cuda.
enum class Implementation { kLocal, kGloo, kStaged, kStagedOnDevice, kNccl };
const char* Name(Implementation implementation);

// The implementations with their world sizes. With --config=cuda, only the implementations that
// need a GPU; the ranks share one GPU.
std::vector<std::tuple<Implementation, int>> GroupsToTest();

// The reason why no implementation can run here; empty if they can run.
const char* WhyNot();

// The device of the tensors of this thread's rank; for use within RunRanks.
c10::Device TestDevice();

// Runs `body` on every rank, each in its own thread with its own communicator. `body` may destroy
// its communicator early. Returns when all ranks have ended.
void RunRanks(Implementation implementation, int world_size,
              const std::function<void(std::unique_ptr<Communicator> ranks)>& body,
              std::chrono::milliseconds timeout = std::chrono::minutes(2));

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TEST_GROUPS_H_
