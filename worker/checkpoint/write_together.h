// Writes files for other programs with the elements of a state of all ranks: a file of an
// optimizer's state, or the folder of a model. Each rank writes its own ranges straight into the
// files; no rank holds the whole.
//
// A rank on another file system, which does not see the folder, sends its ranges in small portions
// to rank 0. Rank 0 writes them.
#ifndef MUSTER_WORKER_CHECKPOINT_WRITE_TOGETHER_H_
#define MUSTER_WORKER_CHECKPOINT_WRITE_TOGETHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/safetensors/safetensors.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"

namespace muster::checkpoint {

// The output: new files, under temporary names that no other process uses. All ranks make the same
// output. Only rank 0 calls the methods, except the first two. Threading: one thread.
class JointOutput {
 public:
  struct File {
    std::string path;
    uint64_t size = 0;
    mode_t mode = 0644;  // as for OutputFile
  };
  // The place of an item's elements in the output.
  struct Place {
    size_t file = 0;
    uint64_t offset = 0;
    // A float32 item may become kBF16 or kF16.
    safetensors::DType dtype = safetensors::DType::kF32;
  };
  struct Bytes {
    size_t file = 0;
    uint64_t offset = 0;
    std::string bytes;
  };

  virtual ~JointOutput() = default;

  virtual const std::vector<File>& files() const = 0;
  virtual const std::vector<Place>& places() const = 0;  // by item

  // OK if the output may get its final name. Called before anything is written, and again before
  // the final name is given, because writing may take long.
  virtual absl::Status CheckTarget() const = 0;
  // Makes the folders in which the files are created.
  virtual absl::Status MakeFolders() = 0;
  // True if Rest needs the CRC-32 (zlib's) of each item's bytes.
  virtual bool needs_crcs() const { return false; }
  // Returns all bytes of the files that belong to no item. `crcs`: by item; empty if they are not
  // needed.
  virtual std::vector<Bytes> Rest(const std::vector<uint32_t>& crcs) const = 0;
  // Gives the output its final name. All its files are complete and synced.
  virtual absl::Status GiveName(files::Disk& disk) = 0;
  // Removes the created files; called unless GiveName succeeded. The files may not have been
  // created.
  virtual void Discard() = 0;
};

struct WriteTogetherOptions {
  int64_t step = 0;
  // A flag that is true on any rank when nobody needs the output any more. Null: the output is
  // always needed.
  const std::atomic<bool>* cancelled = nullptr;
  // A function that rank 0 calls before the output gets its final name; after an error the output
  // does not get the name. Null: no other process can replace this one.
  std::function<absl::Status()> still_mine = nullptr;
};

struct WriteTogetherOutcome {
  // Not OK: there is no new output, and an old output was not changed (unless GiveName failed after
  // it had given the name). The error names the ranks. CANCELLED: `cancelled` was set before the
  // output was complete.
  absl::Status status;
  uint64_t bytes = 0;  // of all files
};

// Collective. `output`: the output, or the error why this rank cannot make it. `state`:
// CheckWritable's. A Status that is not OK means that the communicator failed. Needs memory for two
// blocks of files::kHashedBlock bytes, and on rank 0 for another two if a rank does not see the
// folder.
absl::StatusOr<WriteTogetherOutcome> WriteTogether(
    const absl::StatusOr<std::unique_ptr<JointOutput>>& output, const State& state,
    comm::Communicator* communicator, const WriteTogetherOptions& options,
    files::Disk& disk = files::Disk::Real());

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WRITE_TOGETHER_H_
