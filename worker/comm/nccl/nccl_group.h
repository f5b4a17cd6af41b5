// NCCL's communicator of one rank, without blocking calls: made, used and aborted with statuses.
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
  // Aborts, if Finish was not called.
  ~NcclGroup();

  // Runs `calls` between ncclGroupStart and ncclGroupEnd, and returns when NCCL has given the work
  // to the stream; the first time that includes connecting the ranks. UNAVAILABLE: an error of
  // NCCL, or Abort was called. DEADLINE_EXCEEDED: it took longer than `timeout`.
  absl::Status Run(const std::function<ncclResult_t(ncclComm_t)>& calls,
                   std::chrono::milliseconds timeout);

  // Frees what NCCL holds, without an abort. All operations must have ended.
  absl::Status Finish(std::chrono::milliseconds timeout);

  // An error that NCCL found since the last call; UNAVAILABLE.
  absl::Status Poll();

  // Ends the kernels that run, and makes all later calls fail.
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
