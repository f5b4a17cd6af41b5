// The first phase of a session: what a session has before it reads files or hears of other ranks.
//
// Each phase is made from the phase before and owns it:
//   Opened    opened.h         identity, job, communicators, and the ways to the outside
//   Agreed    agreed.h         job, model and data, which are the same on all ranks
//   Loaded    loaded.h         strategy, optimizer and stages, with the state of a checkpoint
//   Running   running.h        runs the stages
// Running returns a SessionEnd (session_parts.h), which owns no phase.
#ifndef MUSTER_WORKER_TRAIN_SESSION_OPENED_H_
#define MUSTER_WORKER_TRAIN_SESSION_OPENED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/parallel/communicators.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/session/profile.h"
#include "worker/train/session/session_parts.h"

namespace muster::train {

// Threading: one thread, in all phases.
struct Opened {
  Opened(const Identity& identity, const Job& job, const SessionParts& parts);

  bool leader() const { return reports.leader(); }
  int64_t world_size() const { return parts.control->world_size(); }
  // Returns the model's device.
  c10::Device device() const { return parts.gradients->device(); }
  parallel::Communicators communicators() const { return {parts.gradients, parts.parameters}; }
  // True if no rank ever holds the whole model.
  bool in_shards() const { return std::holds_alternative<parallel::FsdpOptions>(job.strategy); }

  const Identity identity;
  // The job. Only the end of its schedule changes, and only if the job file leaves the end open:
  // when the stages are planned (loaded.cc), and by SkipSamples.
  Job job;
  comm::FlightRecorder own_flight;
  comm::FlightRecorder* const flight;  // records each collective of the session
  std::vector<std::unique_ptr<comm::Communicator>> recorded;
  Profile profile;
  const SessionParts parts;  // with the session's own communicators
  SessionState state;
  const SessionReports reports;
  const Attempts attempts;
  checkpoint::Writing own_writing;
  checkpoint::Writing* const writing;
  checkpoint::CountingDisk disk;  // for all files that are written during training
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_OPENED_H_
