// Checkpoints of one generation, written and read by all ranks together (architecture.md 6,
// docs/reference/checkpoint-format.md).
//
// Every public method is collective: all ranks call it at the same point with equal arguments
// (except for the parts of the state that they hold), and all get the same outcome. A Status that
// is not OK means that the communicator failed and the session is over. Errors of files are in the
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
#include "common/layout/placement.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"

namespace muster::checkpoint {

// The kernel's boot id. Processes that share a kernel, and so its page cache, have the same one,
// whatever containers they are in; other machines have others. Empty if the kernel gives none.
std::string NodeId();

struct SaverOptions {
  std::string directory;  // of the job's checkpoints, seen by all ranks; made when missing
  std::string job;
  int64_t generation = 0;
  std::string strategy;    // "ddp": the strategy of the ranks that write, for readers' information
  std::string model_kind;  // "gpt2"
  // The epoch that rank 0 has begun. Absent: no other process can use the directory.
  std::optional<Epoch> epoch = std::nullopt;
  // Equal for ranks on one node, which share one page cache.
  std::string node = NodeId();
  // How a rank waits before it reads a file again that it could not read. Absent: it sleeps.
  std::function<void(absl::Duration)> wait = nullptr;
};

// The position of the state in the training of the job; written to the manifest.
struct SavePoint {
  int64_t step = 0;          // steps done
  int64_t last_command = 0;  // number of the newest command that the ranks have taken in
  int64_t epoch = 0;         // sampler position: the consumed samples
  int64_t cursor = 0;
  std::vector<manifest::SamplingRecord> sampling = {};  // how the samples were consumed
  manifest::Steering steering;
  friend bool operator==(const SavePoint&, const SavePoint&) = default;
};

struct SaveOutcome {
  // Not OK: nothing was committed and nothing is left behind; the error names the ranks. Training
  // continues.
  absl::Status status;
  std::string name;  // "step-200-g3", relative to the directory
  manifest::Manifest manifest;
};

// What a session may start from.
struct Candidate {
  // The name of a directory in SaverOptions.directory, or an absolute path.
  std::string name;
  // It counts as the job's: it is renamed to <name>.bad if it is certainly damaged. A job with such
  // candidates never starts without one of them. Any other candidate is read twice: all of it is
  // checked before a tensor is changed.
  bool recorded = true;
  // It also counts as damaged if its manifest names another job than SaverOptions.job.
  bool own = true;
};

// Why a candidate was not used.
struct Rejected {
  std::string name;
  // Readers on two nodes found damage or, where all ranks are on one node, two reads there found
  // the same, the second one past the page cache (verdict.h). If false, it could not be found or
  // read, and it is not known whether it is good.
  bool damaged = false;
  std::string reason;
};

// Whether all ranks see one directory. This is a separate type because absl::StatusOr<absl::Status>
// could not distinguish the outcome from an error of the communicator.
struct SharedOutcome {
  absl::Status status;
  // The ranks that are not OK.
  std::vector<int64_t> at_fault;
};

struct RestoreOutcome {
  // NOT_FOUND: none of the candidates could be used, see `rejected`. FAILED_PRECONDITION: a
  // complete checkpoint of another model. INTERNAL: some ranks (`at_fault`) cannot read what the
  // others can read, or read something else. After INTERNAL, and NOT_FOUND if a candidate was
  // `recorded`, the tensors may contain anything.
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

  // Call it when rank 0 has begun the epoch. Not collective.
  void SetEpoch(const Epoch& epoch) { options_.epoch = epoch; }
  // Called on rank 0 before a checkpoint is renamed to its final name; after an error it is not
  // renamed.
  void SetStillMine(std::function<absl::Status()> still_mine) {
    still_mine_ = std::move(still_mine);
  }

  // Checks with a nonce file that all ranks see the same directory. If not, the outcome on all
  // ranks is FAILED_PRECONDITION with the ranks that do not see it, or rank 0's error if rank 0
  // cannot write there.
  absl::StatusOr<SharedOutcome> CheckSharedDirectory();

  // Writes and commits `state`; each rank writes what state.written says. Saving the same point
  // again gives the first outcome; another point of the same step is ALREADY_EXISTS.
  // INVALID_ARGUMENT: a rank's state is not CheckWritable, or the ranks disagree on items or on who
  // writes what; no file was touched then. An ABORTED Status: the directory has a newer epoch,
  // nothing was committed and the session is over; on rank 0 it has NewerGeneration().
  absl::StatusOr<SaveOutcome> Save(const SavePoint& point, const State& state,
                                   const ModelRecords& records = {});

  // Fills the parts of the state that each rank holds from the first of `candidates` (newest first)
  // that all ranks can read, whatever strategy and world size wrote it. Each rank reads and checks
  // the ranges that it needs. The state to fill may depend on the checkpoint: `state_for` is called
  // on all ranks for a candidate whose manifest all can read, and again for the next candidate if
  // its files are not whole; it may run collectives of another communicator. Restore returns its
  // errors, ABORTED as in Save, and the error of rank 0 if rank 0 could not read the epoch.
  using StateFor = std::function<absl::StatusOr<State>(const manifest::Manifest& manifest)>;
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<Candidate>& candidates,
                                         const StateFor& state_for,
                                         Surplus surplus = Surplus::kRefuse);
  // The same for candidates of this job, by name, if the state does not depend on the checkpoint.
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<std::string>& names, const State& state);

 private:
  // What all ranks found when they read (a part of) one candidate.
  struct Reading;
  // One attempt of this rank: at its own part, if `own`, and at the blocks that some rank could not
  // read. It adds to `failed` what this rank could not read.
  using Attempt = std::function<absl::Status(bool own, const Blocks& told, Blocks* failed)>;
  // Attempts until there is a verdict.
  absl::StatusOr<Reading> ReadTogether(const std::string& path,
                                       const std::vector<std::string>& nodes,
                                       const Attempt& attempt);
  // The manifest; of a candidate that is not recorded everything, divided among the ranks.
  absl::StatusOr<Reading> OpenTogether(const Candidate& candidate,
                                       const std::vector<std::string>& nodes,
                                       absl::StatusOr<Reader>* reader);
  absl::StatusOr<Reading> FillTogether(const std::string& path,
                                       const std::vector<std::string>& nodes, const Reader& reader,
                                       const std::vector<Reader::Copy>& copies);
  // By rank, equal for ranks on one node.
  absl::StatusOr<std::vector<std::string>> Nodes();
  void WaitToReadAgain();
  // OK without an epoch.
  absl::Status CheckEpochHere() const;
  absl::Status EndOfEpoch(const absl::Status& told) const;
  // The result of this rank's check of `state` before anything is written: an error, or a hash of
  // what the manifest will contain.
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
