// One session: one generation of a job on one rank, from loading to the end of the last stage.
//
// Life cycle: Create builds everything (model, data, communicating strategy, optimizer) and
// restores the newest good checkpoint; Run goes through the remaining stages; then the object is
// destroyed. Nothing live is mutated by membership: a lost peer ends the session with an error, and
// a new generation makes a new one. Threading: one thread. Ranks may be threads of one process (no
// process-wide state is touched). Errors: see Classify.
#ifndef MUSTER_WORKER_TRAIN_SESSION_H_
#define MUSTER_WORKER_TRAIN_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/failure.h"
#include "worker/train/job.h"
#include "worker/train/outside.h"

namespace muster::train {

// What a session stands on; all outlive it. The two communicators span the same ranks.
struct SessionParts {
  comm::Communicator* control;    // roll call, evaluation totals, checkpoint agreement
  comm::Communicator* gradients;  // owned in use by the strategy
  const CommandSource* commands;
  EventSink* events;
  // Recorded checkpoints (absolute directories), newest first: the first good one is where to
  // start.
  std::vector<std::string> checkpoints;
  // Of rank 0. Null: an export takes its place at once.
  ExportGate* export_gate = nullptr;
  // Before the last save, or an export, is tried a second and a third time.
  absl::Duration save_retry = absl::Seconds(2);
  // Directories in the job's folder that do not count any more.
  std::vector<std::string> retired_checkpoints;
  // There were recorded ones that were damaged, all of them: without a whole one the job does not
  // begin anew by itself.
  bool had_checkpoints = false;
  // Somebody decided so: begin anew, or from this directory. Neither: from `checkpoints`.
  bool from_scratch = false;
  std::string start_from;
  // Where the session's collectives are noted; null: nowhere outside.
  comm::FlightRecorder* flight = nullptr;
  // Asked after each roll call, and before a file gets its final name. Null: nobody else can take
  // this process's place.
  const LeaseHolder* lease = nullptr;
};

struct SessionEnd {
  int64_t step = 0;
  bool stopped = false;     // by a stop command
  bool preempted = false;   // it goes on elsewhere
  std::string ended_early;  // why training ended before its last step, where nobody asked for it
};

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts);
  virtual ~Session() = default;

  virtual absl::StatusOr<SessionEnd> Run() = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_H_
