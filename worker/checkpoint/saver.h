// Checkpoints of one generation, written and read by all ranks together (architecture.md 6,
// docs/checkpoint-format.md).
//
// Every public method is collective: all ranks call it at the same point with equal arguments
// (except what of the state they hold), and all get the same outcome. A Status that is not OK means
// that the communicator failed: the session is over. What went wrong with files alone is in the
// outcome.
//
// Threading: one thread; no other collective of the same communicator may be under way.
#ifndef MUSTER_WORKER_CHECKPOINT_SAVER_H_
#define MUSTER_WORKER_CHECKPOINT_SAVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/node.h"
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
  // That of rank 0. Absent: nobody else can be in the directory.
  std::optional<Epoch> epoch = std::nullopt;
  // Equal for ranks on one node, whose reads go through one page cache.
  std::string node = NodeId();
  // How a rank lets time pass before it reads again what it could not read. Absent: it sleeps.
  std::function<void(absl::Duration)> wait = nullptr;
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

// What a session may start from.
struct Candidate {
  // Of a directory in SaverOptions.directory, or its absolute path.
  std::string name;
  // It is renamed to <name>.bad where it is certainly damaged.
  bool put_aside = true;
  // It is damaged, too, where its manifest names another job than SaverOptions.job.
  bool own = true;
};

// Why a candidate was not used.
struct Rejected {
  std::string name;
  // Readers on two nodes found damage or, where all ranks are on one node, two reads there found
  // the same, the second one past the page cache (verdict.h). Else it could not be found or read,
  // which says nothing about it.
  bool damaged = false;
  std::string reason;
};

// Whether all ranks see one directory. A type of its own: absl::StatusOr<absl::Status> would take
// an error of the communicator for the outcome.
struct SharedOutcome {
  absl::Status status;
  // The ranks that are not OK.
  std::vector<int64_t> at_fault;
};

struct RestoreOutcome {
  // NOT_FOUND: none of the candidates, see `rejected`. FAILED_PRECONDITION: a whole checkpoint of
  // another model. INTERNAL: some ranks cannot read, or read otherwise, what the others read:
  // `at_fault`. In every case no tensor was touched.
  absl::Status status;
  std::string name;
  manifest::Manifest manifest;
  std::vector<Rejected> rejected;
  std::vector<int64_t> at_fault;
};

class Saver {
 public:
  // `communicator` and `disk` must outlive the saver.
  Saver(SaverOptions options, comm::Communicator* communicator,
        files::Disk& disk = files::Disk::Real());

  // Once rank 0 has begun it. Not collective.
  void SetEpoch(const Epoch& epoch) { options_.epoch = epoch; }
  // Asked on rank 0 before a checkpoint gets its name; after an error it gets none.
  void SetStillMine(std::function<absl::Status()> still_mine) {
    still_mine_ = std::move(still_mine);
  }

  // Proves by a nonce file that all ranks see the same directory. The outcome, on all ranks, is
  // FAILED_PRECONDITION naming the ranks that do not; or rank 0's error where it cannot write
  // there.
  absl::StatusOr<SharedOutcome> CheckSharedDirectory();

  // Writes and commits `state`; each rank writes what state.written says. Saving the same point
  // again gives the first outcome; another point of the same step is ALREADY_EXISTS.
  // INVALID_ARGUMENT: a rank's state is not CheckWritable, or the ranks disagree on items or on who
  // writes what; no file was touched then. An ABORTED Status: the directory has a newer epoch,
  // nothing was committed and the session is over; on rank 0 it has NewerGeneration().
  absl::StatusOr<SaveOutcome> Save(const SavePoint& point, const State& state);

  // Fills what each rank holds of a state from the first one of `candidates` (newest first) that
  // all ranks can read, whatever strategy and world size wrote it. What is to be filled may depend
  // on the checkpoint: `state_for` is called on all ranks for a candidate that all can read; it may
  // be a collective of another communicator. Its errors are those of Restore, and so is ABORTED as
  // in Save.
  using StateFor = std::function<absl::StatusOr<State>(const manifest::Manifest& manifest)>;
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<Candidate>& candidates,
                                         const StateFor& state_for);
  // The same of own candidates, by name, where the checkpoint does not matter.
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<std::string>& names, const State& state);

 private:
  // What all ranks found of one candidate.
  struct Reading;
  absl::StatusOr<Reading> Read(const Candidate& candidate, const std::vector<std::string>& nodes);
  // By rank, equal for ranks on one node.
  absl::StatusOr<std::vector<std::string>> Nodes();
  void WaitToReadAgain();
  // OK without an epoch.
  absl::Status CheckEpochHere() const;
  absl::Status EndOfEpoch(const absl::Status& told) const;
  // What this rank has to say of `state` before anything is written: an error, or (as a file's
  // hash) what the manifest will tell.
  PartResult CheckPlan(const State& state) const;
  // Writes this rank's part into the temporary directory.
  PartResult WritePart(const std::string& temporary, const std::vector<layout::Range>& part,
                       const State& state);

  SaverOptions options_;
  comm::Communicator* const communicator_;
  std::function<absl::Status()> still_mine_;
  files::Disk& disk_;
  std::optional<SavePoint> last_point_;
  SaveOutcome last_outcome_;  // of last_point_, committed
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SAVER_H_
