// The checkpoints of a session: their places, the choice of the checkpoint to start from, and
// saving. worker/checkpoint has the commit rule. This file adds recorded and unrecorded
// checkpoints, the folder's owner and epoch, and events.
#ifndef MUSTER_WORKER_TRAIN_SAVE_CHECKPOINTS_H_
#define MUSTER_WORKER_TRAIN_SAVE_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::train {

// Returns the job's own folder under checkpoint.directory, named by the job's id. So two jobs with
// the same setting never change each other's checkpoints.
std::string CheckpointFolder(const Identity& identity, const CheckpointConfig& config);

// Returns the epoch that the session begins in the job's folder.
checkpoint::Epoch EpochOf(const Identity& identity);

// Whether this job wrote the checkpoint. False for another job, and for a job of the same id under
// another coordinator.
bool IsOwn(const manifest::Manifest& manifest, const Identity& identity);

// The job's checkpoints, as the coordinator knows them.
struct CheckpointHistory {
  // The directories of the checkpoints that count, newest first; absolute.
  std::vector<std::string> recorded;
  // The checkpoints in the job's folder that do not count any more.
  std::vector<std::string> retired;
  // The retired checkpoints whose files are being removed, because newer ones replaced them.
  std::vector<std::string> dropped;
  // There were other checkpoints, which were damaged. Without a good checkpoint the job does not
  // start again from step 0 without a user's decision.
  bool had_others = false;
  // A user's decision: start from step 0, or continue from this directory.
  bool from_scratch = false;
  std::string start_from;

  // True if the job has written checkpoints before.
  bool any() const { return !recorded.empty() || had_others; }
};

// All methods except PathOf are collectives of the communicator. Threading: one thread at a time.
class Checkpoints {
 public:
  struct Restored {
    checkpoint::SavePoint point;  // all zero: nothing to restore
    std::string path;             // empty: nothing to restore
    int64_t generation = 0;       // the generation that wrote the checkpoint
    int64_t world_size = 0;       // the world size of that generation
  };

  // Checks that all ranks see the same folder. Creates the folder only if the job has no
  // checkpoints yet. `still_mine` is called before a checkpoint is renamed to its final name; if it
  // returns an error, the checkpoint is not renamed. Errors: FAILED_PRECONDITION if the ranks do
  // not see the same folder. Causes: kCheckpointsUnreadable (on all ranks); kNodeFault (on the
  // ranks that do not see the other ranks' folder).
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Open(
      const Identity& identity, const CheckpointConfig& config, const CheckpointHistory& history,
      const std::string& strategy, const std::string& model_kind, comm::Communicator* communicator,
      EventSink* events, std::function<absl::Status()> still_mine,
      files::Disk& disk = files::Disk::Real());

  // Begins the folder's epoch, removes unfinished files, and fills a state from the newest
  // checkpoint that all ranks can read. This is a recorded checkpoint, or an unrecorded one that
  // continues the training of this job. Damaged checkpoints are renamed and reported. Unknown
  // checkpoints are kept and reported. FAILED_PRECONDITION: the folder has checkpoints of another
  // job, by the owner file that the first session of a job writes. Causes: those of Open,
  // kStaleEpoch, and kStartDoesNotFit (on all ranks).
  absl::StatusOr<Restored> Restore(const checkpoint::Saver::StateFor& state_for);

  // Fills a state from the checkpoint in `directory`, which any job may have written. The state may
  // be a part of the checkpoint's. A collective of `communicator`. Errors: NOT_FOUND: no rank can
  // read the checkpoint; FAILED_PRECONDITION: the checkpoint does not fit; those of `state_for`;
  // kNodeFault as in Open.
  static absl::StatusOr<Restored> RestoreFrom(const std::string& directory,
                                              const Identity& identity,
                                              comm::Communicator* communicator,
                                              const checkpoint::Saver::StateFor& state_for);

  // Returns the path of a checkpoint of this name, whether it exists or not.
  std::string PathOf(const std::string& name) const;

  struct Saved {
    absl::Status files;  // the caller reports an error, and training may continue
    std::string path;
    uint64_t bytes = 0;  // all ranks' files
  };
  // Saves without reports. Errors: the communicator's, or an error with the cause kStaleEpoch.
  absl::StatusOr<Saved> Save(const checkpoint::SavePoint& point, const checkpoint::State& state,
                             const checkpoint::ModelRecords& records);

 private:
  Checkpoints(const Identity& identity, const CheckpointHistory& history,
              const checkpoint::SaverOptions& options, comm::Communicator* communicator,
              EventSink* events, files::Disk& disk)
      : identity_(identity),
        folder_(options.directory),
        history_(history),
        communicator_(communicator),
        events_(events),
        saver_(options, communicator, disk) {}
  // Returns the names of the recorded checkpoints in the job's folder.
  std::vector<std::string> RecordedNames() const;
  // Returns OK if all ranks see the folder; otherwise the error of this rank.
  absl::Status CheckFolderIsThere();
  // Takes ownership of the folder and lists its contents. Rank 0 only.
  absl::Status TakeFolder();
  // Calls TakeFolder on rank 0. Returns the unknown checkpoints that continue the training of this
  // job, newest first; the same on all ranks.
  absl::StatusOr<std::vector<std::string>> FindAdoptable();
  std::vector<checkpoint::Candidate> Candidates(const std::vector<std::string>& adoptable) const;
  // Reports the checkpoints that rank 0 found. Does nothing on other ranks.
  void ReportFound(const checkpoint::RestoreOutcome& outcome);
  // Returns the error of a job without any readable checkpoint.
  absl::Status NoneCanBeRead(const std::string& what_was_found) const;

  const Identity identity_;
  const std::string folder_;
  const CheckpointHistory history_;
  comm::Communicator* const communicator_;
  EventSink* const events_;
  checkpoint::Saver saver_;
  std::vector<checkpoint::FoundCheckpoint> found_;  // on rank 0
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_CHECKPOINTS_H_
