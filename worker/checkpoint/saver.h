// Checkpoints of one generation, written and read by all ranks together (architecture.md 6,
// docs/checkpoint-format.md).
//
// Every public method is collective: all ranks call it at the same point with equal arguments
// (except what of the state they hold), and all get the same outcome. A Status that is not OK means that
// the communicator failed: the session is over. What went wrong with files alone is in the outcome.
//
// Threading: one thread; no other collective of the same communicator may be under way.
#ifndef MUSTER_WORKER_CHECKPOINT_SAVER_H_
#define MUSTER_WORKER_CHECKPOINT_SAVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/layout/placement.h"

namespace muster::checkpoint {

struct SaverOptions {
  std::string directory;  // of the job's checkpoints, seen by all ranks; made when missing
  std::string job;
  int64_t generation = 0;
  std::string strategy;    // "ddp": who writes, for readers' information
  std::string model_kind;  // "gpt2"
};

// Where the state stands; goes into the manifest.
struct SavePoint {
  int64_t step = 0;          // steps done
  int64_t last_command = 0;  // number of the newest command that was taken in
  int64_t epoch = 0;         // sampler position: what was consumed
  int64_t cursor = 0;
  manifest::Steering steering;
  friend bool operator==(const SavePoint&, const SavePoint&) = default;
};

struct SaveOutcome {
  // Not OK: nothing was committed and nothing is left behind; names the ranks. Training goes on.
  absl::Status status;
  std::string name;  // "step-200-g3", relative to the directory
  manifest::Manifest manifest;
};

struct SetAsideCheckpoint {
  std::string name;
  std::string reason;
};

struct RestoreOutcome {
  // NOT_FOUND: no candidate was good, see `set_aside`. FAILED_PRECONDITION: a whole checkpoint of
  // another model. Other codes: a candidate could not be read, which says nothing about it (it is
  // not set aside). In every case no tensor was touched.
  absl::Status status;
  std::string name;
  manifest::Manifest manifest;
  std::vector<SetAsideCheckpoint> set_aside;  // the broken ones, renamed to <name>.bad
};

class Saver {
 public:
  // `communicator` and `disk` must outlive the saver.
  Saver(SaverOptions options, comm::Communicator* communicator,
        files::Disk& disk = files::Disk::Real());

  // Proves by a nonce file that all ranks see the same directory. The outcome is
  // FAILED_PRECONDITION naming the ranks that do not, on all ranks.
  absl::StatusOr<absl::Status> CheckSharedDirectory();

  // Writes and commits `state`; each rank writes what state.written says. Saving the same point again
  // gives the first outcome; another point of the same step is ALREADY_EXISTS. INVALID_ARGUMENT: a
  // rank's state is not CheckWritable, or the ranks disagree on items or on who writes what; no file
  // was touched then.
  absl::StatusOr<SaveOutcome> Save(const SavePoint& point, const State& state);

  // Fills what each rank holds of `state` from the first good one of `candidates` (directory names,
  // newest first), whatever strategy and world size wrote it.
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<std::string>& candidates,
                                         const State& state);

  // The same where what is to be filled depends on the checkpoint. Called on all ranks for a candidate that all can read; may be a
  // collective of another communicator. Its errors are those of Restore.
  using StateFor = std::function<absl::StatusOr<State>(const manifest::Manifest& manifest)>;
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<std::string>& candidates,
                                         const StateFor& state_for);

 private:
  // What this rank has to say of `state` before anything is written: an error, or (as a file's hash)
  // what the manifest will tell.
  PartResult CheckPlan(const State& state) const;
  // Writes this rank's part into the temporary directory.
  PartResult WritePart(const std::string& temporary, const std::vector<layout::Range>& part,
                       const State& state);

  const SaverOptions options_;
  comm::Communicator* const communicator_;
  files::Disk& disk_;
  std::optional<SavePoint> last_point_;
  SaveOutcome last_outcome_;  // of last_point_, committed
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SAVER_H_
