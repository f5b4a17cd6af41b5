// The behaviour of one muster-worker as others see it: its stream to the coordinator, its lease,
// and its end. Reports on the stream are numbered, and repeated until they are acknowledged.
// TrainingSession simulates the training of all the generation's ranks together
// (training_session.h).
#ifndef MUSTER_TESTS_SIMULATION_WORKER_PROCESS_H_
#define MUSTER_TESTS_SIMULATION_WORKER_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/lease/lease.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "tests/simulation/scene.h"
#include "worker/agent/core/worker_record.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::simulation {

class WorkerProcess {
 public:
  // on_end: called with the exit status that the parent process gets.
  WorkerProcess(Scene* scene, const cluster::WorkerId& id, const std::string& node, int64_t pid,
                std::function<absl::Time()> agents_lease_end,
                std::function<void(const agent::Ending&)> on_end);

  // ---- Called by the node.
  void Order(StreamId stream, const cluster::WorkerOrder& order);
  // Ends the process. vanished: its machine fails, too.
  void Die(const agent::Ending& ending, bool vanished = false);
  void Signal(int signal);
  // SIGSTOP and SIGCONT.
  void Freeze();
  void Thaw();
  // Makes the process hang: it sends heartbeats, but makes no progress.
  void Hang() { hung_ = true; }

  // ---- For its session.
  template <typename What>
  void Report(const What& what) {
    unacked_.push_back({.sequence = ++reports_, .what = what});
    Pump();
  }
  // Ends the process after its last report.
  void Finish(int64_t step, bool preempted);
  void Fail(const jobs::ReportedFailure& failure);
  const std::vector<train::Command>& held() const { return held_; }
  const std::vector<jobs::Checkpoint>& checkpoints() const { return checkpoints_; }
  const std::vector<jobs::Checkpoint>& known_checkpoints() const { return known_checkpoints_; }
  void Moved(int64_t step) {
    step_ = step;
    ++activity_;
  }
  // True if all reports are acknowledged or, with `spool`, on the disk of the agent, which sends
  // them.
  bool Settled(bool spool);
  // True if the lease is not over at this moment.
  bool StillMine();

  const cluster::WorkerId& id() const { return id_; }
  const std::string& node() const { return node_; }
  int64_t pid() const { return pid_; }
  bool alive() const { return alive_; }
  // True if the process takes part in the common actions of the ranks.
  bool responds() const { return alive_ && !frozen_ && !hung_ && !ending_; }
  bool frozen() const { return frozen_; }
  // True if the process knows that the job continues on other nodes.
  bool preempted() const { return preempted_; }
  bool ending() const { return ending_; }

 private:
  // Runs a function now, or when the process is resumed. Does nothing if the process is dead.
  void Run(std::function<void()> what);
  void After(absl::Duration delay, std::function<void()> what);
  void AwaitWelcome();
  void Connect();
  void Ended(StreamId stream, const StreamEnd& end);
  void Welcome(const cluster::WelcomeWorker& welcome);
  void Pump();
  void Beat();
  void Probe();
  // Writes the reports that are not acknowledged to the node's disk.
  void Spool();
  void SpoolWhileAway();
  // The thread that watches the lease; only SIGSTOP can stop it.
  void WatchLease();
  void CloseStream();
  void JoinWhenReady();
  void Exit(int code) { Die(agent::ExitCode{code}); }
  void Acknowledged();

  Scene& scene_;
  const cluster::WorkerId id_;
  const std::string node_;
  const int64_t pid_;
  // The same generation number may be used again if the database is an older one.
  const uint64_t databases_;
  const std::function<void(const agent::Ending&)> on_end_;
  // The begin of the wait for the first welcome: the process's start, or the last time that nobody
  // listened.
  absl::Time waits_from_;
  const std::function<absl::Time()> agents_lease_end_;

  bool alive_ = true;
  bool frozen_ = false;
  bool hung_ = false;
  bool preempted_ = false;
  bool ending_ = false;
  // The exit code of the process after its last report is acknowledged.
  int end_code_ = 0;
  bool terminate_at_thaw_ = false;
  // The received messages in order, and timers, while the process is stopped.
  std::deque<std::function<void()>> waiting_;
  std::vector<std::function<void()>> waiting_timers_;

  StreamId stream_ = 0;
  bool attached_ = false;
  absl::Time opened_;
  Lease lease_;
  bool lease_over_ = false;
  bool probing_ = false;
  std::optional<uint64_t> needed_commands_;
  std::vector<jobs::Checkpoint> checkpoints_;
  std::vector<jobs::Checkpoint> known_checkpoints_;
  bool rendezvous_ = false;
  bool joined_ = false;
  std::vector<train::Command> held_;
  std::deque<cluster::Report> unacked_;
  size_t sent_ = 0;  // of unacked_, on this stream
  uint64_t reports_ = 0;
  uint64_t spooled_through_ = 0;
  uint64_t step_ = 0;
  uint64_t activity_ = 0;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_WORKER_PROCESS_H_
