// The roll calls of a session. SessionRollCall makes this rank's records and acts on the plan that
// follows from the records of all ranks. The record for step s+1 is posted when step s begins and
// carries the newest loss then known. roll_call.h exchanges the records and decides.
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
#include "worker/train/reports/coordinator_interface.h"
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

// The metrics of finished steps that wait for their mean loss over all ranks, which a roll call
// gives. Threading: the session's thread.
class LossReports {
 public:
  // peak_flops: the peak FLOP/s of the devices of all ranks together; 0: not known. mean_tokens:
  // Dataset::mean_tokens.
  explicit LossReports(double peak_flops, std::optional<double> mean_tokens = std::nullopt)
      : peak_flops_(peak_flops), mean_tokens_(mean_tokens) {}

  // Adds the step after which `step` optimizer steps are done. `samples`: of all ranks together.
  void Add(int64_t step, int64_t samples, const models::Model& model);
  // Sets the duration of a step, which includes the step's roll call.
  void SetSeconds(int64_t step, double seconds);
  // Adds the measurements of a step. Called before Complete gets the loss of the step.
  void AddResult(int64_t step, const StepResult& result);
  // Returns the metrics up to the step of this loss, oldest first. An earlier step whose loss
  // no call has reported has no loss.
  std::vector<v1::StepMetrics> Complete(const StepLoss& loss, const models::Model& model);

 private:
  struct Waiting {
    v1::StepMetrics metrics;
    // The FLOPs of the forward and backward passes of all ranks; 0: the model does not know.
    double flops = 0;
  };
  Waiting* Find(int64_t step);  // null: the metrics are complete, or were never added

  std::deque<Waiting> waiting_;  // oldest first
  const double peak_flops_;
  const std::optional<double> mean_tokens_;
};

// Threading: the session's thread. Every method that makes or awaits a call is a collective.
class SessionRollCall {
 public:
  // All must outlive the SessionRollCall.
  struct Dependencies {
    Identity identity;
    comm::Communicator* control;
    const comm::FlightRecorder* flight;
    const CommandSource* commands;
    const LeaseHolder* lease = nullptr;  // null: no other process can replace this one
    const SessionState* session_state;
    const SessionReports* reports;
    const models::Model* model;
    const TrainedParameters* trained;  // the model's
    // The source of the compared layout. Null: nothing is trained; every rank has the whole model.
    const Training* training = nullptr;
    data::Sampler* sampler = nullptr;  // this rank's input; null: nothing is trained
    int64_t samples = 0;               // samples in this rank's data
    UnevenInputs uneven_inputs = {};
    int64_t full_micro_batches = 1;  // of all ranks together, in a step without missing input
    double peak_flops = 0;           // the parameters of LossReports
    std::optional<double> mean_tokens = std::nullopt;
  };
  explicit SessionRollCall(const Dependencies& deps);

  // Makes a blocking call for the next step. Errors of all calls, in addition to the
  // communicator's:
  // - UNAVAILABLE: the lease is over.
  // - FAILED_PRECONDITION: the ranks differ; the message names the difference.
  // - OUT_OF_RANGE: the loss of the newest step is not finite; the message has the loss's origin.
  absl::StatusOr<RollCallPlan> CallNow();
  // Posts the overlapped call for the step after the step that begins now.
  void PostNext();
  absl::StatusOr<RollCallPlan> AwaitNext();

  // Takes a step that `session_state` already counts. The next call sends and reports the loss of
  // this step. The result of a late step (PendingStep::late; on GPUs) is read one step later. The
  // next posted call then sends the loss. CallNow waits for the results of late steps.
  // OUT_OF_RANGE: kMostSkippedInARow steps in a row were skipped. Other errors: those of
  // PendingStep.
  absl::Status TakeIn(PendingStep step, int64_t samples);
  // Sets the duration of this step, which includes the roll call. Does nothing for a late step: its
  // duration is set when its result is read. That duration counts from the later of two times: the
  // begin of the step, and the time when the result before was read.
  void SetSeconds(double seconds);
  // The outcome of the newest step with a known result.
  StepOutcome outcome() const { return newest_.outcome; }

 private:
  // Returns this rank's record for the step after `step` completed steps. `position`: its begin.
  RollCallRecord Record(int64_t step, const data::Position& position) const;
  void Post(const RollCallRecord& record);
  absl::StatusOr<RollCallPlan> BlockingCall();
  // Waits for the results of all steps except the newest `left`.
  absl::Status AwaitResults(size_t left);

  const Dependencies deps_;
  RollCall roll_call_;
  int64_t attempt_ = 0;

  using Clock = std::chrono::steady_clock;
  struct PendingResult {
    int64_t number = 0;
    PendingStep step;
    Clock::time_point begun;
  };
  std::deque<PendingResult> running_;  // steps without a known result, oldest first
  StepResult newest_;                  // the newest known result
  int64_t newest_step_ = 0;            // 0: none in this session
  int64_t posted_step_ = 0;            // the newest step whose loss was posted
  Clock::time_point begun_;            // when the newest step began
  Clock::time_point read_;             // when the newest result of a late step was read
  std::string posted_not_finite_;      // StepResult::not_finite of posted_step_
  int64_t skipped_in_a_row_ = 0;       // steps, in this session
  std::vector<JoinedRank> joined_;     // the ranks that were last reported
  LossReports loss_reports_;
  UnusedParameters unused_;
};

// The roll calls of a running session outside of steps: at boundaries, and during long work. The
// calls during long work ask whether the work must end early. Threading: the session's thread. All
// methods are collectives.
class Calls {
 public:
  // All must outlive the Calls.
  struct Dependencies {
    SessionRollCall* roll_call;
    const Background* background;
    const CommandSource* commands;
    const CommandSchedule* schedule;
    const SessionState* session_state;
    bool has_checkpoints;
  };
  explicit Calls(const Dependencies& deps) : deps_(deps) {}

  // Makes a blocking roll call for the next step. Success means that the losses are finite on every
  // rank, so training may continue. An error ends the session. If a background task has failed,
  // returns the error of the task and makes no call.
  absl::StatusOr<RollCallPlan> CallNow();
  // Makes a call. Returns whether the job must leave its nodes or stop.
  absl::StatusOr<bool> AskedToEnd();
  // The same question for an evaluation pass. In a job without checkpoints, a pass continues
  // although the job must leave its nodes. Such a job starts again from the beginning, and this
  // pass may be its only remaining work.
  absl::StatusOr<bool> PassMustEnd();

 private:
  bool StopsNow(const RollCallPlan& plan) const;

  const Dependencies deps_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_SESSION_ROLL_CALL_H_
