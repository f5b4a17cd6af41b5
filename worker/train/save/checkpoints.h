// A session's checkpoints: where they are, which one to start from, and saving. Adds to the commit
// rule of worker/checkpoint what a job needs: recorded and unrecorded checkpoints, the folder's
// owner and epoch, and events.
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
#include "worker/train/reports/outside.h"

namespace muster::train {

// The checkpoints of a job are in their own folder under checkpoint.directory, named by the job's
// id, so that two jobs with the same setting never change each other's checkpoints.
std::string CheckpointFolder(const Identity& identity, const CheckpointConfig& config);

// The epoch that a session begins in that folder.
checkpoint::Epoch EpochOf(const Identity& identity);

// Whether this job wrote the checkpoint, not another one, nor one of the same id elsewhere.
bool IsOwn(const manifest::Manifest& manifest, const Identity& identity);

// The job's checkpoints, as the coordinator knows them.
struct CheckpointHistory {
  // The directories of checkpoints that count, newest first; absolute.
  std::vector<std::string> recorded;
  // Checkpoints in the job's folder that do not count any more.
  std::vector<std::string> retired;
  // Those of them whose files are being removed, because newer ones have taken their places.
  std::vector<std::string> dropped;
  // There were other checkpoints, which were damaged. Without a good one the job does not start
  // again from step 0 by itself.
  bool had_others = false;
  // What a user decided: start from step 0, or continue from this directory.
  bool from_scratch = false;
  std::string start_from;

  // True if the job has written checkpoints before.
  bool any() const { return !recorded.empty() || had_others; }
};

// All methods but PathOf are collective over the communicator. Threading: one thread at a time.
class Checkpoints {
 public:
  struct Restored {
    checkpoint::SavePoint point;  // all zero: nothing to restore
    std::string path;             // empty: nothing to restore
    int64_t generation = 0;       // the generation that wrote it
    int64_t world_size = 0;       // of that generation
  };

  // Checks that all ranks see the same folder. It is created if the job has no checkpoints yet; if
  // the job has checkpoints and the folder is missing, it is not created again.
  // FAILED_PRECONDITION: the ranks do not see the same one. Errors have causes:
  // kCheckpointsUnreadable (on all ranks), kNodeFault (on the ranks that do not see what the others
  // see). `still_mine` is called before a checkpoint is renamed to its final name. If it returns an
  // error, the checkpoint is not renamed.
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Open(
      const Identity& identity, const CheckpointConfig& config, const CheckpointHistory& history,
      const std::string& strategy, const std::string& model_kind, comm::Communicator* communicator,
      EventSink* events, std::function<absl::Status()> still_mine,
      files::Disk& disk = files::Disk::Real());

  // Begins the folder's epoch, removes what was left unfinished, and fills a state from the newest
  // checkpoint that all ranks can read: a recorded one, or an unrecorded one that continues the
  // training of this job. Damaged ones are renamed and reported, unknown ones kept and reported.
  // FAILED_PRECONDITION: the folder holds checkpoints of another job (by the owner file, which the
  // first session of a job writes). Causes as of Open, kStaleEpoch, and kStartDoesNotFit (on all
  // ranks).
  absl::StatusOr<Restored> Restore(const checkpoint::Saver::StateFor& state_for);

  // Fills a state from the checkpoint in `directory`, which any job may have written. The state may
  // be a part of what the checkpoint holds. A collective over `communicator`. Errors: NOT_FOUND: no
  // rank can read it; FAILED_PRECONDITION: it does not fit; those of `state_for`; kNodeFault as in
  // Open.
  static absl::StatusOr<Restored> RestoreFrom(const std::string& directory,
                                              const Identity& identity,
                                              comm::Communicator* communicator,
                                              const checkpoint::Saver::StateFor& state_for);

  // Where a checkpoint of this name lies, or would.
  std::string PathOf(const std::string& name) const;

  struct Saved {
    absl::Status files;  // on an error the caller reports it, and training may continue
    std::string path;
    uint64_t bytes = 0;  // of all ranks' files
  };
  // Reports nothing. Errors: the communicator's, or one with the cause kStaleEpoch.
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
  // The names of the recorded checkpoints in the job's folder.
  std::vector<std::string> RecordedNames() const;
  // OK if all ranks see the folder; otherwise the error of this rank.
  absl::Status CheckFolderIsThere();
  // Rank 0: takes ownership of the folder and lists its contents.
  absl::Status TakeFolder();
  // Calls TakeFolder on rank 0. Returns, the same on all ranks, the unknown checkpoints that
  // continue the training of this job, newest first.
  absl::StatusOr<std::vector<std::string>> FindAdoptable();
  std::vector<checkpoint::Candidate> Candidates(const std::vector<std::string>& adoptable) const;
  // Rank 0: reports what happened to the checkpoints that it found.
  void ReportFound(const checkpoint::RestoreOutcome& outcome);
  // The error of a job that has checkpoints of which none can be read.
  absl::Status NoneCanBeRead(const std::string& what_was_found) const;

  const Identity identity_;
  const std::string folder_;
  const CheckpointHistory history_;
  comm::Communicator* const communicator_;
  EventSink* const events_;
  checkpoint::Saver saver_;
  std::vector<checkpoint::Found> found_;  // on rank 0
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_CHECKPOINTS_H_
