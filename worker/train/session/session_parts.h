// What a session is given, and how it ends.
#ifndef MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_
#define MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/outside.h"
#include "worker/train/save/checkpoints.h"

namespace muster::train {

// What a session uses; all must outlive it. The communicators have the same ranks.
struct SessionParts {
  comm::Communicator* control;     // roll calls, agreement, totals, loss terms of a step
  comm::Communicator* gradients;   // the strategy's, and between two steps also Training's
  comm::Communicator* parameters;  // used by the strategy only (parallel/communicators.h)
  // For checkpoints and the files of optimizer states, which are written while training goes on.
  comm::Communicator* files;
  const CommandSource* commands;
  EventSink* events;
  // The session starts from the first good one of `recorded`, or from what a user decided.
  CheckpointHistory checkpoints = {};
  // On rank 0. Null: exported weights get their final name at once.
  ExportGate* export_gate = nullptr;
  // The pause before the last save, or an export, is tried again.
  absl::Duration save_retry = absl::Seconds(2);
  // A retry has changed the job's learning rate: that of a checkpoint of an earlier generation than
  // this one does not count any more. 0: every checkpoint's counts.
  int64_t learning_rate_since = 0;
  // What the coordinator knows of earlier sessions of this job.
  StagesDone stages_done;
  // Records the session's collectives. Null: the session records them in an object of its own.
  comm::FlightRecorder* flight = nullptr;
  // Says how far this rank has come with the file that it writes. Null: an object of its own.
  checkpoint::Writing* writing = nullptr;
  // Checked after each roll call, and before a file gets its final name. Null: no other process can
  // replace this one.
  const LeaseHolder* lease = nullptr;
};

struct SessionEnd {
  int64_t step = 0;
  bool stopped = false;     // by a stop command
  bool preempted = false;   // the job continues on other nodes
  std::string ended_early;  // why training ended before its last step, if no user asked for it
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_
