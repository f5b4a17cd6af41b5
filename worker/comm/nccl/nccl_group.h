// NCCL's communicator of one rank. Its functions return statuses, and every wait has a limit.
#ifndef MUSTER_WORKER_COMM_NCCL_NCCL_GROUP_H_
#define MUSTER_WORKER_COMM_NCCL_NCCL_GROUP_H_

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace muster::comm {

// Thread-safe. The calling thread's current CUDA device must be the rank's.
class NcclGroup {
 public:
  // unique_id: the bytes of NewId on rank 0.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(const std::string& unique_id, int rank,
                                                           int world_size,
                                                           std::chrono::milliseconds timeout);
  static absl::StatusOr<std::string> NewId();
  // Aborts, unless Finish was called.
  ~NcclGroup();

  // Runs `calls` between ncclGroupStart and ncclGroupEnd. Returns when NCCL has given the work to
  // the stream; the first call also connects the ranks. UNAVAILABLE on an error of NCCL, or if
  // Abort was called. DEADLINE_EXCEEDED if NCCL takes longer than `timeout`.
  absl::Status Run(const std::function<ncclResult_t(ncclComm_t)>& calls,
                   std::chrono::milliseconds timeout);

  // Frees the memory and connections of NCCL, without an abort. All operations must have ended.
  absl::Status Finish(std::chrono::milliseconds timeout);

  // UNAVAILABLE if NCCL has found an error.
  absl::Status Poll();

  // Ends the running kernels, and makes all later calls of Run fail.
  void Abort();

 private:
  explicit NcclGroup(ncclComm_t comm) : comm_(comm) {}
  absl::Status Settle(const char* call, ncclResult_t result, absl::Time end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Held while NCCL is called, so that no other thread aborts in the middle of a call. None of
  // these calls blocks.
  absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_);  // null after Abort
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_NCCL_NCCL_GROUP_H_
