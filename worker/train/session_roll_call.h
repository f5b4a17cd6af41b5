// The roll call as a session uses it: what this rank says of itself before each step, in which
// attempt, with the loss of the newest finished step; and what becomes of what the ranks say.
// roll_call.h exchanges the records and decides.
#ifndef MUSTER_WORKER_TRAIN_SESSION_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_SESSION_ROLL_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/train/job.h"
#include "worker/train/loss_reports.h"
#include "worker/train/outside.h"
#include "worker/train/roll_call.h"
#include "worker/train/session_reports.h"
#include "worker/train/standing.h"
#include "worker/train/step.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

// Threading: the session's thread. Everything that calls is a collective.
class SessionRollCall {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    comm::Communicator* control;
    const comm::FlightRecorder* flight;
    const CommandSource* commands;
    const LeaseHolder* lease = nullptr;  // null: nobody can take this process's place
    const Standing* standing;
    const SessionReports* reports;
  };
  explicit SessionRollCall(const Parts& parts) : parts_(parts), roll_call_(parts.control) {}

  // Before the first call. What of the model the ranks compare.
  struct Subject {
    const models::Model* model;
    const TrainedParameters* trained;
    UnevenInputs uneven_inputs = {};
    int64_t full_micro_batches = 1;
  };
  void SetSubject(const Subject& subject);
  // What this rank brings to steps; never called where nothing is trained. samples: of its data.
  void SetInput(data::Sampler* sampler, int64_t samples);
  // A hash of what lies where, after each plan.
  void SetLayout(int64_t layout) { layout_ = layout; }

  // A blocking call for the step that comes now. Errors of all calls, apart from the
  // communicator's: the lease is over (UNAVAILABLE); the ranks differ in something, which is named
  // (FAILED_PRECONDITION); the loss of the newest step is not finite, with its origin
  // (OUT_OF_RANGE).
  absl::StatusOr<RollCallPlan> CallNow();
  // The overlapped call for the step after the one that begins now.
  void PostNext();
  absl::StatusOr<RollCallPlan> AwaitNext();

  // After a step, which the standing counts already: its loss travels in the next call, and is
  // reported with the answer. OUT_OF_RANGE once so many steps in a row were skipped that no more of
  // them will help.
  absl::Status TakeIn(const StepResult& result, int64_t samples);
  // All that this step cost, the roll call too.
  void SetSeconds(double seconds) { loss_reports_.SetSeconds(seconds); }
  // Of the newest step.
  Outcome outcome() const { return newest_.outcome; }

 private:
  // What this rank says of the step after `step` done ones, which begins at `position`.
  RollCallRecord Record(int64_t step, const data::Position& position) const;
  void Post(const RollCallRecord& record);

  const Parts parts_;
  RollCall roll_call_;
  Subject subject_{};
  data::Sampler* sampler_ = nullptr;
  int64_t samples_ = 0;
  int64_t layout_ = 0;
  int64_t attempt_ = 0;

  StepResult newest_;
  int64_t newest_step_ = 0;         // 0: none in this session
  std::string posted_not_finite_;   // StepResult's, of the step whose loss was posted last
  int64_t skipped_in_a_row_ = 0;    // in this session
  std::vector<JoinedRank> joined_;  // as reported
  LossReports loss_reports_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_ROLL_CALL_H_
