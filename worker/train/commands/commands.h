// Carries out the commands of the job's command log and reports how each command ended. Each
// command takes effect at its step boundary (command_schedule.h), the same on all ranks.
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
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/saving.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {

// Threading: the session's thread. Apply and EndHere are collectives. TellUnreported acts on the
// leader only.
class Commands {
 public:
  // All must outlive the Commands. The commands change `session_state` and `schedule`. Through
  // `skip_data` they also change the stages and `learning_rates`.
  struct Dependencies {
    const CommandSource* source;
    std::function<absl::StatusOr<RollCallPlan>()> call;  // Calls::CallNow
    Saver* saver;                       // null: the job has no checkpoint folder
    Gatherer* gatherer;                 // null: the job trains nothing
    TrainabilityChanger* trainability;  // null: the job trains nothing
    // Calls SkipSamples. Used only if the job trains.
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
  explicit Commands(const Dependencies& deps) : deps_(deps) {}

  // Carries out the commands that take effect now. Every rank holds the commands up to `newest`.
  // While the job is paused, waits for more commands. Returns true if there was any command. An
  // error of a single command is reported as the end of the command and does not end the session.
  absl::StatusOr<bool> Apply(int64_t newest);

  // Saves a checkpoint and stops. Called if some rank was told that the job moves to other nodes.
  absl::Status EndHere();

  // Reports once more, at the start of a session, the commands that the checkpoint includes but
  // whose report was lost. Reports them as applied, done, failed or cancelled, without results
  // (FindUnreported).
  void TellUnreported() const;

 private:
  absl::Status Apply(const CommandSchedule::Due& due);

  const Dependencies deps_;
  bool paused_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
