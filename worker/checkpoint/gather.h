// Writes the optimizer's state of all ranks to one file for Python (common/optimizerfile). Each
// rank writes its own ranges straight into the file; nothing whole exists on any rank.
//
// Collective: all ranks call it at the same point with equal arguments, except for the parts of the
// state that they hold. All ranks see the folder of the file.
#ifndef MUSTER_WORKER_CHECKPOINT_GATHER_H_
#define MUSTER_WORKER_CHECKPOINT_GATHER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/optimizerfile/optimizer_file.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"

namespace muster::checkpoint {

struct GatherOptions {
  std::string path;       // absolute
  std::string temporary;  // beside it, where the file is written; no other process uses this name
  optimizerfile::Format format = optimizerfile::Format::kTorch;
  optimizerfile::Key key = optimizerfile::Key::kIndex;
  bool overwrite = false;  // replace a file that exists
  // As optimizerfile::Contents.
  double schedule_factor = 1;
  int64_t step = 0;
  // Once it is true on any rank, nobody needs the file any more. Null: somebody does.
  const std::atomic<bool>* cancelled = nullptr;
};

struct GatherOutcome {
  // Not OK: there is no new file, and an old one was not changed (unless only the sync of the
  // folder failed: then the new file is there, and may be gone after a crash of the machine). The
  // error names the ranks.
  // ALREADY_EXISTS: there is a file, and `overwrite` is not set. CANCELLED: `cancelled` was set
  // before the file was complete.
  absl::Status status;
  uint64_t bytes = 0;  // of the file
};

// `state`: the items of the optimizer, float32. A Status that is not OK means that the
// communicator failed. `still_mine`: called on rank 0 before the file gets its name; after an error
// it does not get it. Needs memory for one block of files::kHashedBlock bytes if the state is not
// on the CPU.
absl::StatusOr<GatherOutcome> GatherOptimizerState(const GatherOptions& options, const State& state,
                                                   const ModelRecords& records,
                                                   comm::Communicator* communicator,
                                                   const std::function<absl::Status()>& still_mine,
                                                   files::Disk& disk = files::Disk::Real());

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_GATHER_H_
