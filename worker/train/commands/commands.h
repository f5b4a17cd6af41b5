// Carries out the commands of the job's log, each at its step boundary (command_schedule.h) and the
// same on all ranks, and reports how it ended.
#ifndef MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
#define MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/operation.pb.h"
#include "worker/optim/schedule.h"
#include "worker/train/evaluate/evaluate.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/saving.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {

// Threading: the session's thread. Everything but the constructor may be a collective.
class Commands {
 public:
  // All outlive it. Commands changes `session_state` and `schedule` (of the commands), and through
  // `skip_data` the stages and `learning_rates`.
  struct Parts {
    const CommandSource* source;
    std::function<absl::StatusOr<RollCallPlan>()> call;  // Calls::CallNow
    Saver* saver;                   // null: the job has no checkpoints
    Gatherer* gatherer;             // null: the job trains nothing
    TrainabilityChanger* training;  // likewise; changes which parameters are trained
    // SkipSamples; called only if the job trains.
    std::function<absl::StatusOr<v1::SkippedData>(int64_t samples, bool dry_run)> skip_data;
    Evaluator* evaluator;
    Generator* generator;
    const optim::Schedule* learning_rates;
    CommandSchedule* schedule;
    SessionState* session_state;
    const SessionReports* reports;
    // The time between two roll calls of a paused job.
    std::chrono::milliseconds pause_beat{200};
  };
  explicit Commands(const Parts& parts) : parts_(parts) {}

  // Carries out the commands that take effect now, given that every rank holds the commands up to
  // `newest`. While the job is paused, it waits for more commands. Returns true if there was any
  // command. An error that concerns one command only is reported as the end of that command.
  absl::StatusOr<bool> Apply(int64_t newest);

  // Called if some rank was told that the job continues on other nodes: saves a checkpoint and
  // stops.
  absl::Status EndHere();

  // At the start of a session: reports as done or cancelled, without results, the commands that the
  // checkpoint includes and of which the coordinator has not heard. Their reports were lost with
  // the process that wrote the checkpoint.
  void TellUnreported() const;

 private:
  absl::Status Apply(const CommandSchedule::Due& due);

  const Parts parts_;
  bool paused_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
