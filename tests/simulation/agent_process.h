// One node: the machine, its muster-agent, and the agent's processes. The agent has the real
// deciding core, and is driven as by worker/agent/agent.cc. Each part can be stopped, killed, or
// disconnected without notice. An agent that ended is started again, as by systemd.
#ifndef MUSTER_TESTS_SIMULATION_AGENT_PROCESS_H_
#define MUSTER_TESTS_SIMULATION_AGENT_PROCESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "tests/simulation/scene.h"
#include "tests/simulation/worker_process.h"
#include "worker/agent/core/core.h"

namespace muster::simulation {

class AgentProcess {
 public:
  AgentProcess(Scene* scene, const std::string& node, const agent::CoreOptions& options);

  void Start();
  void Order(StreamId stream, const cluster::AgentOrder& order);

  // ---- Faults. SIGKILL: the agent's workers die, too.
  void Kill();
  // SIGTERM.
  void Terminate();
  // SIGSTOP and SIGCONT of the agent alone, or of everything on the machine.
  void Freeze();
  void Thaw();
  void FreezeMachine();
  void ThawMachine();
  // A power failure: no other process is notified.
  void Vanish();

  const std::string& node() const { return node_; }
  bool running() const { return core_ != nullptr; }
  bool frozen() const { return frozen_; }
  // The processes that run.
  std::vector<WorkerProcess*> Workers() const;

 private:
  void Run(std::function<void()> what);
  void After(absl::Duration delay, std::function<void()> what);
  void Handle(const agent::Event& event);
  void ScheduleTick();
  void Connect();
  void Ended(StreamId stream, const StreamEnd& end);
  void Probe();
  void TellMore(const agent::WorkerId& worker);
  void Die(bool vanished);
  // Sends a message. aside: the message is a heartbeat.
  void Send(std::function<absl::Status(cluster::Cluster&, absl::Time)> apply, bool aside = false);

  void Do(const agent::Launch& launch);
  void Do(const agent::SendSignal& effect);
  void Do(const agent::SendHello& effect);
  void Do(const agent::SendHeartbeat& effect);
  void Do(const agent::SendStarted& effect);
  void Do(const agent::SendExit& effect);
  void Do(const agent::SendDraining& effect);
  void Do(const agent::SendSpool& effect);
  void Do(const agent::DropStream& effect);
  void Do(const agent::LeaseOver& effect);
  void Do(const agent::Quit& effect);

  Scene& scene_;
  const std::string node_;
  const agent::CoreOptions options_;

  // A number that grows with each start, so that events of an earlier process are ignored.
  uint64_t process_ = 0;
  std::string incarnation_;
  std::unique_ptr<agent::Core> core_;
  bool frozen_ = false;
  bool welcomed_ = false;
  bool probing_ = false;
  std::vector<std::function<void()>> waiting_;
  absl::Time tick_at_ = absl::InfiniteFuture();
  StreamId stream_ = 0;
  absl::Time opened_;
  int64_t pids_ = 0;
  std::map<agent::WorkerId, WorkerProcess*> workers_;
  // The number of reports of a spool that the coordinator has acknowledged.
  std::map<agent::WorkerId, size_t> spooled_;
  // All processes that ever ran, so that scheduled events for them stay valid.
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_AGENT_PROCESS_H_
