// A session's checkpoints: where they lie, restoring the newest good one, saving. Wraps the commit rule of
// worker/checkpoint with what a job adds: recorded and unrecorded ones, and events.
#ifndef MUSTER_WORKER_TRAIN_CHECKPOINTS_H_
#define MUSTER_WORKER_TRAIN_CHECKPOINTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/train/job.h"
#include "worker/train/outside.h"

namespace muster::train {

// Checkpoints of a job lie in a folder of their own under checkpoint.directory, named by the job's id, so
// that two jobs with the same setting never touch each other's.
std::string CheckpointFolder(const Identity& identity, const CheckpointConfig& config);

// All methods are collective over the communicator. Threading: the session's thread.
class Checkpoints {
 public:
  struct Restored {
    checkpoint::SavePoint point;  // all zero: nothing to restore
    std::string path;             // empty: nothing to restore
    int64_t generation = 0;       // that wrote it
  };

  // Proves that all ranks see one folder. FAILED_PRECONDITION: they do not.
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Open(const Identity& identity,
                                                           const CheckpointConfig& config,
                                                           const std::string& strategy,
                                                           const std::string& model_kind,
                                                           comm::Communicator* communicator,
                                                           EventSink* events);

  // Fills a state from the first good one of `recorded` (directories, newest first) and removes what is
  // neither recorded nor put aside. Broken ones are put aside and reported. FAILED_PRECONDITION: the folder
  // holds checkpoints of another job (by the owner file, which the first session of a job writes).
  absl::StatusOr<Restored> Restore(const std::vector<std::string>& recorded,
                                   const checkpoint::Saver::StateFor& state_for);

  struct Saved {
    absl::Status files;  // where they failed, which the caller reports, training may go on
    std::string path;
  };
  // An error is the communicator's.
  absl::StatusOr<Saved> Save(const checkpoint::SavePoint& point, const checkpoint::State& state);

 private:
  Checkpoints(const Identity& identity, std::string folder, const std::string& strategy,
              const std::string& model_kind, comm::Communicator* communicator, EventSink* events);
  void Report(const Event& event);

  const Identity identity_;
  const std::string folder_;
  EventSink* const events_;
  checkpoint::Saver saver_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_CHECKPOINTS_H_
