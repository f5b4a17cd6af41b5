// The first phase of a session: what it has from its first moment. Nothing has been read yet, and
// nothing has been heard of other ranks.
//
// The phases, each made from the one before, which it owns:
//   Opened    opened.h         who the session is, its job, its ways to ranks and to the outside
//   Agreed    agreed.h         job, model and data, which are the same on all ranks
//   Loaded    loaded.h         strategy, optimizer and stages, with the state of a checkpoint
//   Running   running.h        what goes through the stages
// What Running returns at the end is a SessionEnd (session_parts.h), which owns none of them.
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

// Threading: one thread, as all phases.
struct Opened {
  Opened(const Identity& identity, const Job& job, const SessionParts& parts);

  bool leader() const { return reports.leader(); }
  int64_t world_size() const { return parts.control->world_size(); }
  // Of the model.
  c10::Device device() const { return parts.gradients->device(); }
  parallel::Communicators communicators() const { return {parts.gradients, parts.parameters}; }
  // True if no rank ever holds the whole model.
  bool in_shards() const { return std::holds_alternative<parallel::FsdpOptions>(job.strategy); }

  const Identity identity;
  // Changed only where its schedule ends, if the job file leaves that open: when the stages are
  // planned (loaded.cc), and by SkipSamples.
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
  checkpoint::CountingDisk disk;  // for all that is written while training continues
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_OPENED_H_
