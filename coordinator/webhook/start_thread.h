// How a thread is started, so that a test can let it fail.
#ifndef MUSTER_COORDINATOR_WEBHOOK_START_THREAD_H_
#define MUSTER_COORDINATOR_WEBHOOK_START_THREAD_H_

#include <functional>
#include <thread>
#include <utility>

namespace muster::webhook {

// Throws std::system_error if there cannot be one more thread, as std::thread does.
using StartThread = std::function<std::thread(std::function<void()> run)>;

inline std::thread NewThread(std::function<void()> run) { return std::thread(std::move(run)); }

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_START_THREAD_H_
