// All ranks of one generation together: roll calls, the command schedule of workers, steps, saves
// by the commit rule, and the end after a rank's loss. Collective actions of the ranks happen at
// one moment here, but the ranks' messages to the coordinator do not.
#ifndef MUSTER_TESTS_SIMULATION_TRAINING_SESSION_H_
#define MUSTER_TESTS_SIMULATION_TRAINING_SESSION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/scene.h"
#include "tests/simulation/worker_process.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::simulation {

class TrainingSession {
 public:
  TrainingSession(Scene* scene, const std::string& job, uint64_t generation);

  void Join(WorkerProcess* rank);
  // Notes that a rank was lost. vanished: the other ranks do not notice the loss.
  void Lost(WorkerProcess* rank, bool vanished);

 private:
  struct Save {
    SavedCheckpoint what;
    // The command that is finished with the save; 0: none.
    int64_t command = 0;
  };

  std::string Name(int64_t step) const;
  // True if all ranks are connected and take part.
  bool Together() const;
  bool StillOurs();
  // Ends the session with a failure. Rank 0 reports the reason; the other ranks report a
  // consequence, or the same reason.
  void Fail(const jobs::ReportedFailure& failure);
  // Begins the session. Every rank has the same position, so all ranks take the same decisions.
  void Begin();
  void TellUnreported(const train::CommandSchedule::Position& position);
  void Boundary();
  void Step();
  // Carries out the commands that are due. False: the session is halted at this boundary, or over.
  bool ApplyCommands();
  void Apply(const train::CommandSchedule::Due& due);
  void Finish(int64_t command, const commands::Outcome& outcome = {});
  void StartSave(int64_t command);
  void WriteNext();
  void Written();
  void EndWhenSaved();
  void Later(absl::Duration delay, void (TrainingSession::*what)());

  WorkerProcess& leader() { return *ranks_[0]; }

  Scene& scene_;
  const std::string job_;
  const uint64_t generation_;
  const JobSettings settings_;
  std::vector<WorkerProcess*> ranks_;
  bool over_ = false;

  Training training_;
  std::vector<train::CommandSchedule> schedules_;
  bool paused_ = false;
  bool preempted_ = false;
  bool last_step_done_ = false;
  int64_t saved_step_ = -1;
  // The end of the wait for reports of the written checkpoint; absent: the checkpoint is not
  // written yet.
  std::optional<absl::Time> settle_until_;
  // The saves to do; the first one is being written.
  std::deque<Save> saves_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_TRAINING_SESSION_H_
