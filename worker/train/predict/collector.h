// Brings what all ranks have computed for a file to rank 0, which writes it, part by part as the
// parts arrive: the whole is never in memory.
#ifndef MUSTER_WORKER_TRAIN_PREDICT_COLLECTOR_H_
#define MUSTER_WORKER_TRAIN_PREDICT_COLLECTOR_H_

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace muster::train {

// Bytes of a file that follow one another; there may be none.
struct FileRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Threading: one thread.
class Collector {
 public:
  // Writes bytes at this place of the file.
  using Write = std::function<absl::Status(uint64_t begin, std::string_view bytes)>;
  // What rank 0 receives at a time from all ranks together, at most, in bytes: this is the memory
  // that it needs. Another rank needs memory for what it sends at a time, which is not more. With
  // so many ranks that less than 8 bytes would be a rank's share, 8 bytes for each of them.
  static constexpr uint64_t kMostBytes = uint64_t{16} << 20;

  // The communicator is for tensors on the CPU. `write`: called on rank 0 only. `step`: of the
  // training, for the communicator's errors.
  Collector(comm::Communicator* communicator, int64_t step, Write write,
            uint64_t most_bytes = kMostBytes);

  // A collective. `ranges`: what each rank has, by rank, the same on all ranks. `own`: this rank's
  // bytes, a flat tensor of bytes on the CPU. Returns false, on all ranks in the same call, once
  // rank 0 could not write, which may be a later call than that in which it failed. Errors: the
  // communicator's.
  absl::StatusOr<bool> Add(const std::vector<FileRange>& ranges, const at::Tensor& own);

  // Rank 0's first error of `write`; OK on all other ranks.
  const absl::Status& written() const { return written_; }

 private:
  bool leader() const { return communicator_->rank() == 0; }
  void WriteOne(uint64_t begin, std::string_view bytes);
  // Each other rank sends the bytes of its range from `from` on, at most portion_ of them.
  absl::StatusOr<bool> Exchange(const std::vector<FileRange>& ranges, const at::Tensor& own,
                                uint64_t from);

  comm::Communicator* const communicator_;
  const int64_t step_;
  const Write write_;
  const uint64_t portion_;  // a multiple of 8
  absl::Status written_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_COLLECTOR_H_
