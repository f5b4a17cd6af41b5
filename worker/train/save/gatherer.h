// How commands write the state of all ranks to files for others than the job.
#ifndef MUSTER_WORKER_TRAIN_SAVE_GATHERER_H_
#define MUSTER_WORKER_TRAIN_SAVE_GATHERER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

class Gatherer {
 public:
  virtual ~Gatherer() = default;

  // Called at most once, with the result, or with why there is none: no error of the session.
  using Told = std::function<void(const absl::StatusOr<OptimizerStateGathered>& gathered)>;
  using ToldOfModel = std::function<void(const absl::StatusOr<ModelConsolidated>& consolidated)>;

  // Both are collectives. They wait until the files before are written, copy what this rank writes,
  // and return; the files are written in the background. With `hold` nothing is copied, and they
  // return when the files are written. `told` hears how it ended, on the thread that wrote. Errors:
  // those of the communicator, and of StateSource::AwaitWeights. What ends the session meanwhile is
  // the background's error. A file for a client without a path has no folder on rank 0's node.
  virtual absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) = 0;
  virtual absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                                   ToldOfModel told) = 0;

  // Cancels what was begun for this command, waits for its end, and tells it. False: it is
  // complete, it failed, or it was never begun in this session. The same on all ranks.
  virtual absl::StatusOr<bool> Cancel(int64_t command) = 0;
  // Stops what is under way, and tells nobody of its end: the next generation carries it out. The
  // job leaves its nodes, which must not wait for a large file.
  virtual absl::Status LeaveToNextGeneration() = 0;
  // Rank 0 removes what earlier generations left beside `path`.
  virtual void RemoveLeftovers(const std::string& path) const = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_GATHERER_H_
