// The input and the end of a session.
#ifndef MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_
#define MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/save/checkpoints.h"

namespace muster::train {

// The objects that a session uses. All must outlive the session. The communicators have the same
// ranks.
struct SessionParts {
  comm::Communicator* control;     // roll calls, agreement, totals, loss terms of a step
  comm::Communicator* gradients;   // the strategy's, and between two steps also Training's
  comm::Communicator* parameters;  // used by the strategy only (parallel/communicators.h)
  // For checkpoints and the files of optimizer states, which are written during training.
  comm::Communicator* files;
  const CommandSource* commands;
  EventSink* events;
  // The session starts from the first good checkpoint of `recorded`, or as a user decided.
  CheckpointHistory checkpoints = {};
  // On rank 0. Null: exported weights get their final name at once.
  ExportGate* export_gate = nullptr;
  // The pause before another attempt of the last save or of an export.
  absl::Duration save_retry = absl::Seconds(2);
  // The generation since which the job's learning rate counts, because a retry changed the rate.
  // The learning rate in a checkpoint of an earlier generation is ignored. 0: the rate of every
  // checkpoint counts.
  int64_t learning_rate_since = 0;
  // The coordinator's knowledge of earlier sessions of this job.
  StagesDone stages_done;
  // Records the session's collectives. Null: the session uses its own recorder.
  comm::FlightRecorder* flight = nullptr;
  // Has the progress of the file that this rank writes. Null: the session uses its own object.
  checkpoint::Writing* writing = nullptr;
  // Checked after each roll call, and before a file gets its final name. Null: no other process can
  // replace this one.
  const LeaseHolder* lease = nullptr;
};

struct SessionEnd {
  int64_t step = 0;
  bool stopped = false;     // a stop command ended the session
  bool preempted = false;   // the job continues on other nodes
  std::string ended_early;  // why training ended early without a user's wish
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_SESSION_PARTS_H_
