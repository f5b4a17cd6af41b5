// Groups of ranks for tests, of any implementation: N ranks as N threads.
#ifndef MUSTER_WORKER_COMM_TEST_GROUPS_H_
#define MUSTER_WORKER_COMM_TEST_GROUPS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/comm/communicator.h"

namespace muster::comm {

// kStaged: comm/staged over comm/local, with tensors on the CPU.
enum class Implementation { kLocal, kGloo, kStaged };
const char* Name(Implementation implementation);

// Runs `body` on every rank, each in its own thread with its own communicator, which it may destroy
// early; returns when all have ended.
void RunRanks(Implementation implementation, int world_size,
              const std::function<void(std::unique_ptr<Communicator> ranks)>& body,
              std::chrono::milliseconds timeout = std::chrono::minutes(2));

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TEST_GROUPS_H_
