// The roll call as a session uses it: makes the record that this rank sends before each step,
// including the loss of the newest finished step, and acts on the plan that follows from all
// records. roll_call.h exchanges the records and decides.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_SESSION_ROLL_CALL_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_SESSION_ROLL_CALL_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/roll_call.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/rollcall/unused_parameters.h"
#include "worker/train/save/background.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/step/step_result.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/training.h"

namespace muster::train {

// The metrics of each finished step, kept until the roll call has given the step's mean loss over
// all ranks. Threading: the session's thread.
class LossReports {
 public:
  // peak_flops: FLOP/s of which the devices of all ranks are capable; 0: not known.
  explicit LossReports(double peak_flops) : peak_flops_(peak_flops) {}

  // The step after which `step` optimizer steps are done. `samples`: of all ranks.
  void Add(int64_t step, int64_t samples, const models::Model& model);
  // The duration of a step, including its roll call.
  void SetSeconds(int64_t step, double seconds);
  // What a step has measured. Called before Complete is called with its loss.
  void Settle(int64_t step, const StepResult& result);
  // Returns the metrics that are complete with this loss, oldest first. An earlier step whose loss
  // was never reported has none.
  std::vector<v1::StepMetrics> Complete(const StepLoss& loss, const models::Model& model);

 private:
  struct Waiting {
    v1::StepMetrics metrics;
    // Of the model's forward and backward passes on all ranks; 0: the model does not know.
    double flops = 0;
  };
  Waiting* Find(int64_t step);  // null: its metrics are complete, or it was never added

  std::deque<Waiting> waiting_;  // oldest first
  const double peak_flops_;
};

// Threading: the session's thread. Everything that makes or awaits a call is a collective.
class SessionRollCall {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    comm::Communicator* control;
    const comm::FlightRecorder* flight;
    const CommandSource* commands;
    const LeaseHolder* lease = nullptr;  // null: no other process can replace this one
    const SessionState* session_state;
    const SessionReports* reports;
    const models::Model* model;
    const TrainedParameters* trained;  // of the model
    // The ranks compare the layout of its strategy's plan. Null: every rank has the whole model,
    // and nothing is trained.
    const Training* training = nullptr;
    data::Sampler* sampler = nullptr;  // the input of this rank; null: nothing is trained
    int64_t samples = 0;               // in this rank's data
    UnevenInputs uneven_inputs = {};
    int64_t full_micro_batches = 1;
    double peak_flops = 0;  // LossReports'
  };
  explicit SessionRollCall(const Parts& parts);

  // A blocking call for the next step. Errors of all calls, in addition to the communicator's:
  // UNAVAILABLE: the lease is over; FAILED_PRECONDITION: the ranks differ in something, which is
  // named; OUT_OF_RANGE: the loss of the newest step is not finite, with its origin.
  absl::StatusOr<RollCallPlan> CallNow();
  // Posts the overlapped call for the step after the one that begins now.
  void PostNext();
  absl::StatusOr<RollCallPlan> AwaitNext();

  // Called after a step that `session_state` already counts. The next call sends the loss of this
  // step and then reports it; if the step is late, the posted call after that. CallNow waits for
  // late steps, so that it knows of all. OUT_OF_RANGE: so many steps in a row were skipped that
  // more of them will not help. Also the errors of PendingStep.
  absl::Status TakeIn(PendingStep step, int64_t samples);
  // The duration of this step, including its roll call. That of a late step is set when its result
  // is read: the time since the result before it, but not longer than since the step began.
  void SetSeconds(double seconds);
  // The outcome of the newest step whose result is known.
  StepOutcome outcome() const { return newest_.outcome; }

 private:
  // The record of this rank for the step after `step` completed ones, which begins at `position`.
  RollCallRecord Record(int64_t step, const data::Position& position) const;
  void Post(const RollCallRecord& record);
  absl::StatusOr<RollCallPlan> BlockingCall();
  // Waits for the results of all steps except the newest `left`.
  absl::Status Settle(size_t left);

  const Parts parts_;
  RollCall roll_call_;
  int64_t attempt_ = 0;

  using Clock = std::chrono::steady_clock;
  struct Running {
    int64_t number = 0;
    PendingStep step;
    Clock::time_point begun;
  };
  std::deque<Running> running_;     // steps whose results are not known yet, oldest first
  StepResult newest_;               // whose result is known
  int64_t newest_step_ = 0;         // 0: none in this session
  int64_t posted_step_ = 0;         // the newest step whose loss was posted
  Clock::time_point begun_;         // of the newest step
  Clock::time_point read_;          // when the newest result of a late step was read
  std::string posted_not_finite_;   // StepResult::not_finite of the step whose loss was posted last
  int64_t skipped_in_a_row_ = 0;    // in this session
  std::vector<JoinedRank> joined_;  // as last reported
  LossReports loss_reports_;
  UnusedParameters unused_;
};

// The roll calls of a running session outside of its steps: at boundaries, and during long work,
// which asks in them whether it has to end early. Threading: the session's thread. All methods are
// collectives.
class Calls {
 public:
  // All outlive it.
  struct Parts {
    SessionRollCall* roll_call;
    const Background* background;
    const CommandSource* commands;
    const CommandSchedule* schedule;
    const SessionState* session_state;
    bool has_checkpoints;
  };
  explicit Calls(const Parts& parts) : parts_(parts) {}

  // A blocking roll call for the next step. Its success means that training may continue from here,
  // because the losses are finite on every rank. An error ends the session. If a task of the
  // background has failed, this returns its error and makes no call.
  absl::StatusOr<RollCallPlan> CallNow();
  // Whether the job is to leave its nodes, or to stop.
  absl::StatusOr<bool> AskedToEnd();
  // The same for a pass of evaluation, which goes on in a job without checkpoints that is to leave
  // its nodes: such a job begins anew, and the pass may be all that is left.
  absl::StatusOr<bool> PassMustEnd();

 private:
  bool StopsNow(const RollCallPlan& plan) const;

  const Parts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_SESSION_ROLL_CALL_H_
