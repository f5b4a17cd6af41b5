// Checkpoints of one generation, written and read by all ranks together
// (docs/reference/checkpoint-format.md).
//
// Every public method except the setters (SetEpoch, SetStillMine) is collective. All ranks call the
// method at the same point with equal arguments (except for their parts of the state), and get the
// same outcome. After an error returned instead of an outcome, the session must end. Either the
// communicator failed, or a newer generation owns the directory (ABORTED), or Restore returns an
// error of `state_for` or of the epoch's file. Other errors of files are in the outcome's `status`:
// then the caller decides whether the session goes on.
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
#include "common/sharding/placement.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"

namespace muster::checkpoint {

// Returns the kernel's boot id. It is the same for processes that share a kernel, and so its page
// cache, whatever containers they are in; other machines have other ids. Empty if the kernel gives
// none.
std::string NodeId();

struct SaverOptions {
  std::string directory;  // of the job's checkpoints, seen by all ranks; made when missing
  std::string job;
  int64_t generation = 0;
  std::string strategy;    // "ddp": the strategy of the ranks that write, for readers' information
  std::string model_kind;  // "gpt2"
  // The epoch that rank 0 has begun. Absent: no other process can use the directory.
  std::optional<Epoch> epoch = std::nullopt;
  // The id of the node, equal for ranks on one node, which share one page cache.
  std::string node = NodeId();
  // The function by which a rank waits before it reads a file again after an error. Absent: it
  // sleeps.
  std::function<void(absl::Duration)> wait = nullptr;
};

// The position of the state in the training of the job, as the manifest records it.
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
  // Not OK: nothing was committed; the error names the ranks. Training continues. A .tmp directory
  // may stay until the next generation removes it.
  absl::Status status;
  std::string name;  // "step-200-g3", relative to the directory
  manifest::Manifest manifest;
};

// A checkpoint from which a session may start.
struct Candidate {
  // The name of a directory in SaverOptions.directory, or an absolute path.
  std::string name;
  // True: the checkpoint counts as the job's. If certainly damaged, the checkpoint is renamed to
  // <name>.bad. A job with such candidates never starts without any of them. False: the checkpoint
  // is read twice, and all of it is checked before a tensor is changed.
  bool recorded = true;
  // True: the checkpoint also counts as damaged if its manifest names another job than
  // SaverOptions.job.
  bool own = true;
};

// A candidate that was not used, and the reason.
struct Rejected {
  std::string name;
  // True: readers on two nodes found damage. Where all ranks are on one node: two reads there found
  // the same damage, the second one past the page cache (verdict.h). False: the candidate could not
  // be found or read, and may be good.
  bool damaged = false;
  std::string reason;
};

// The answer whether all ranks see one directory. The type is separate because
// absl::StatusOr<absl::Status> could not distinguish the outcome from an error of the communicator.
struct SharedOutcome {
  absl::Status status;
  // The ranks with errors.
  std::vector<int64_t> at_fault;
};

struct RestoreOutcome {
  // NOT_FOUND: no candidate could be used, see `rejected`. FAILED_PRECONDITION: a complete
  // checkpoint of another model. INTERNAL: some ranks (`at_fault`) cannot read what the others can
  // read, or read different data. The tensors may contain anything after INTERNAL, and after
  // NOT_FOUND if a candidate was `recorded`.
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
  // Sets a function that rank 0 calls before a checkpoint is renamed to its final name. After an
  // error of the function, the checkpoint is not renamed.
  void SetStillMine(std::function<absl::Status()> still_mine) {
    still_mine_ = std::move(still_mine);
  }

  // Checks with a nonce file that all ranks see the same directory. Otherwise the outcome on all
  // ranks is FAILED_PRECONDITION with the ranks that do not see the directory. If rank 0 cannot
  // write there, the outcome is rank 0's error.
  absl::StatusOr<SharedOutcome> CheckSharedDirectory();

  // Writes and commits `state`; each rank writes its elements of state.written. If the same point
  // was committed last, returns that outcome and writes nothing; another point of the same step is
  // then ALREADY_EXISTS. After a failed save, a repeated save tries again.
  // INVALID_ARGUMENT, before any file is touched: a rank's state is not CheckWritable, or the ranks
  // disagree on items or on writers. An ABORTED Status: the directory has a newer epoch, nothing
  // was committed, and the session is over; on rank 0 it has NewerGeneration().
  absl::StatusOr<SaveOutcome> Save(const SavePoint& point, const State& state,
                                   const ModelRecords& records = {});

  // Fills the held parts of the state from the first of `candidates` (newest first) that all ranks
  // can read. Any strategy and world size may have written the checkpoint. Each rank reads and
  // checks the ranges that it needs.
  //
  // `state_for` returns the state to fill, which may depend on the checkpoint. All ranks call it
  // for a candidate whose manifest all can read, and again for the next candidate if the files are
  // not whole. `state_for` may run collectives of another communicator. Restore returns the errors
  // of `state_for`, ABORTED as in Save, and rank 0's error if rank 0 could not read the epoch.
  using StateFor = std::function<absl::StatusOr<State>(const manifest::Manifest& manifest)>;
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<Candidate>& candidates,
                                         const StateFor& state_for,
                                         Surplus surplus = Surplus::kRefuse);
  // Restores from candidates of this job, by name, a state that does not depend on the checkpoint.
  absl::StatusOr<RestoreOutcome> Restore(const std::vector<std::string>& names, const State& state);

 private:
  // The findings of all ranks that read (a part of) one candidate.
  struct Reading;
  // One attempt of this rank to read: its own part, if `own`, and the blocks that some rank could
  // not read. Adds to `failed` the blocks that this rank could not read.
  using Attempt = std::function<absl::Status(bool own, const Blocks& told, Blocks* failed)>;
  // Repeats attempts until there is a verdict.
  absl::StatusOr<Reading> ReadTogether(const std::string& path,
                                       const std::vector<std::string>& nodes,
                                       const Attempt& attempt);
  // Reads the manifest, and the whole checkpoint if the candidate is not recorded, divided among
  // the ranks.
  absl::StatusOr<Reading> OpenTogether(const Candidate& candidate,
                                       const std::vector<std::string>& nodes,
                                       absl::StatusOr<Reader>* reader);
  absl::StatusOr<Reading> FillTogether(const std::string& path,
                                       const std::vector<std::string>& nodes, const Reader& reader,
                                       const std::vector<Reader::Copy>& copies);
  // Returns the node ids by rank, equal for ranks on one node.
  absl::StatusOr<std::vector<std::string>> Nodes();
  void WaitToReadAgain();
  // OK without an epoch.
  absl::Status CheckEpochHere() const;
  absl::Status EndOfEpoch(const absl::Status& told) const;
  // The result of this rank's check of `state` before anything is written: an error, or a hash of
  // what the manifest will contain.
  PartResult CheckPlan(const State& state) const;
  // Writes this rank's part into the temporary directory.
  PartResult WritePart(const std::string& temporary, const std::vector<sharding::Range>& part,
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
