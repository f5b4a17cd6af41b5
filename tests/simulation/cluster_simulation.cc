#include "tests/simulation/cluster_simulation.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/agent_process.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/client.h"
#include "tests/simulation/coordinator_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scene.h"
#include "tests/simulation/training_session.h"

namespace muster::simulation {
namespace {

constexpr int kNodes = 3;
constexpr absl::Duration kLease = absl::Seconds(10);
// The time during which faults are injected.
constexpr absl::Duration kTrouble = absl::Seconds(90);
// The longest time after that until every job has ended: more than twice the time after which the
// watchdog ends a hung worker.
constexpr absl::Duration kPeace = absl::Minutes(20);

membership::Timing MakeTiming() {
  membership::Timing timing;
  timing.lease = kLease;
  timing.startup = absl::Seconds(60);
  return timing;
}

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : timeline_(options.seed, options.story),
        network_(&timeline_, kLease),
        checker_(&timeline_, &disk_),
        coordinator_(
            &timeline_, &network_, ClusterOptions(options), options.ticks_per_lease,
            {.to_agent = [this](StreamId stream, const auto& order) { ToAgent(stream, order); },
             .to_worker = [this](StreamId stream, const auto& order) { ToWorker(stream, order); },
             .committed = [this](const auto& batch,
                                 const auto& cluster) { checker_.Committed(batch, cluster); }}),
        scene_{timeline_,
               network_,
               disk_,
               checker_,
               coordinator_,
               MakeTiming(),
               options.slow_clocks,
               {},
               {},
               {},
               {},
               {},
               {}},
        client_(&scene_) {
    if (options.slow_clocks) checker_.JudgeFencesOnly();
    agent::CoreOptions core;
    core.slots = options.slots;
    core.lease = kLease;
    for (int i = 0; i < kNodes; ++i) {
      nodes_.push_back(std::make_unique<AgentProcess>(&scene_, absl::StrCat("n", i), core));
    }
    // Each run has few kinds of faults, because one kind may hide the effects of another.
    for (const Fault fault : options.faults) {
      if (timeline_.OneIn(3)) faults_.push_back(fault);
    }
    if (faults_.empty() && !options.faults.empty()) {
      faults_.push_back(*std::next(options.faults.begin(), timeline_.Pick(options.faults.size())));
    }
  }

  SimulationResult Run() {
    coordinator_.Start();
    for (auto& node : nodes_) {
      timeline_.After(timeline_.Between(0, 1), [this, node = node.get()] { Keep(node); });
    }
    const uint32_t jobs = 1 + timeline_.Pick(3);
    for (uint32_t i = 0; i < jobs; ++i) {
      timeline_.After(timeline_.Between(0, 20) * i, [this, i] { Submit(absl::StrCat("j", i)); });
    }
    KeepCoordinator();
    NextFault();
    NextCommand();
    RunUntil(timeline_.now() + kTrouble, nullptr);
    MakePeace();
    RunUntil(timeline_.now() + kPeace, [this] { return Over(); });
    if (timeline_.wrong().empty()) CheckEnd();
    return {timeline_.wrong(), timeline_.happened(), happened_};
  }

 private:
  static cluster::Options ClusterOptions(const SimulationOptions& options) {
    cluster::Options cluster;
    cluster.timing = MakeTiming();
    cluster.timing.without_margin =
        options.planted_in_cluster == cluster::PlantedFault::kLeaseWithoutMargin;
    cluster.planted_fault = options.planted_in_cluster;
    return cluster;
  }

  void RunUntil(absl::Time end, const std::function<bool()>& over) {
    for (uint64_t i = 0; timeline_.wrong().empty() && timeline_.Next(end); ++i) {
      if (over && i % 64 == 0 && over()) return;
    }
  }

  void ToAgent(StreamId stream, const cluster::AgentOrder& order) {
    const auto agent = scene_.agent_streams.find(stream);
    if (agent != scene_.agent_streams.end()) agent->second->Order(stream, order);
  }
  void ToWorker(StreamId stream, const cluster::WorkerOrder& order) {
    const auto worker = scene_.worker_streams.find(stream);
    if (worker != scene_.worker_streams.end()) worker->second->Order(stream, order);
  }

  void Submit(const std::string& job) {
    JobSettings settings;
    settings.world_size = 1 + timeline_.Pick(4);
    settings.total_steps = 20 + timeline_.Pick(60);
    settings.save_every = 3 + timeline_.Pick(10);
    settings.step_time = timeline_.Between(0.2, 2);
    client_.Submit(job, settings, /*max_restarts=*/timeline_.OneIn(4) ? timeline_.Pick(3) : 1000);
  }

  // ---- Restarts of programs that have ended.
  void Keep(AgentProcess* node) {
    if (!node->running() && !lost_.contains(node)) node->Start();
    timeline_.After(timeline_.Between(0.5, 4), [this, node] { Keep(node); });
  }
  void KeepCoordinator() {
    if (!coordinator_.running() && timeline_.now() >= away_until_) coordinator_.Start();
    timeline_.After(timeline_.Between(0.2, 1.5), [this] { KeepCoordinator(); });
  }

  // ---- Faults.
  void NextCommand() {
    timeline_.After(timeline_.Between(0.5, 12), [this] {
      if (peace_) return;
      client_.CommandSomething();
      NextCommand();
    });
  }
  void NextFault() {
    if (faults_.empty()) return;
    timeline_.After(timeline_.Between(0.2, 15), [this] {
      if (peace_) return;
      const Fault fault = faults_[timeline_.Pick(faults_.size())];
      if (Make(fault)) ++happened_[fault];
      NextFault();
    });
  }
  AgentProcess* AnyNode() { return nodes_[timeline_.Pick(nodes_.size())].get(); }
  AgentProcess* AnyAgent() {
    AgentProcess* node = AnyNode();
    return node->running() && !node->frozen() ? node : nullptr;
  }
  WorkerProcess* AnyWorker() {
    const std::vector<WorkerProcess*> workers = AnyNode()->Workers();
    return workers.empty() ? nullptr : workers[timeline_.Pick(workers.size())];
  }
  AgentProcess& NodeOf(const WorkerProcess& worker) {
    return **std::find_if(nodes_.begin(), nodes_.end(),
                          [&](const auto& node) { return node->node() == worker.node(); });
  }
  void Strike(const WorkerProcess& worker) {
    checker_.Struck(worker.id().job, worker.id().generation);
  }
  void Strike(const AgentProcess& node) {
    for (const WorkerProcess* worker : node.Workers()) Strike(*worker);
  }
  void Undo(absl::Duration after, std::function<void()> what) {
    timeline_.After(after, [this, what = std::move(what)] {
      if (!peace_) what();
    });
  }

  // Makes a fault happen. False: there was no process for this fault.
  bool Make(Fault fault) {
    switch (fault) {
      case Fault::kStreamBreaks:
        return network_.BreakOne();
      case Fault::kSlowNetwork:
        network_.SetDelay(absl::Milliseconds(500));
        Undo(timeline_.Between(1, 20), [this] { network_.SetDelay(absl::Milliseconds(20)); });
        return true;
      case Fault::kWorkerKilled:
      case Fault::kWorkerFails:
      case Fault::kWorkerStopped:
      case Fault::kWorkerHangs: {
        WorkerProcess* worker = AnyWorker();
        if (worker == nullptr) return false;
        if (fault == Fault::kWorkerStopped && NodeOf(*worker).frozen()) return false;
        HarmWorker(worker, fault);
        return true;
      }
      case Fault::kAgentKilled:
      case Fault::kAgentTerminated:
      case Fault::kAgentStopped:
      case Fault::kMachineLost:
      case Fault::kMachineStopped: {
        AgentProcess* node = AnyAgent();
        if (node == nullptr || (fault == Fault::kAgentStopped && AnyStopped(*node))) return false;
        HarmNode(node, fault);
        return true;
      }
      case Fault::kMusterdKilled:
      case Fault::kMusterdAway:
      case Fault::kMusterdStopped:
      case Fault::kStoreFails:
      case Fault::kOldDatabase:
        return HarmCoordinator(fault);
      case Fault::kPartition:
        return CutOff(AnyNode(), true, true);
      case Fault::kOneWayPartition: {
        const bool up = timeline_.OneIn(2);
        return CutOff(AnyNode(), up, !up);
      }
      case Fault::kDiskFull:
        disk_.full = true;
        Undo(timeline_.Between(1, 20), [this] { disk_.full = false; });
        return true;
      case Fault::kDiskGone:
        disk_.gone = true;
        Undo(timeline_.Between(1, 20), [this] { disk_.gone = false; });
        return true;
    }
    return false;
  }

  // True if a process of the node is stopped. Nothing could end a stopped worker whose agent is
  // stopped, too, as on a machine that stands still.
  static bool AnyStopped(const AgentProcess& node) {
    const std::vector<WorkerProcess*> workers = node.Workers();
    return node.frozen() || std::any_of(workers.begin(), workers.end(),
                                        [](const auto* one) { return one->frozen(); });
  }
  void HarmWorker(WorkerProcess* worker, Fault fault) {
    timeline_.Tell("fault: ", Name(fault), " at rank ", worker->id().rank, " of generation ",
                   worker->id().generation, " of ", worker->id().job);
    Strike(*worker);
    if (fault == Fault::kWorkerKilled) {
      worker->Signal(SIGKILL);
    } else if (fault == Fault::kWorkerFails) {
      worker->Fail({.reason = "it failed"});
    } else if (fault == Fault::kWorkerHangs) {
      worker->Hang();
    } else {
      worker->Freeze();
      timeline_.After(timeline_.Between(0.1, 30), [worker] { worker->Thaw(); });
    }
  }

  void HarmNode(AgentProcess* node, Fault fault) {
    timeline_.Tell("fault: ", Name(fault), " at ", node->node());
    const absl::Duration duration = timeline_.Between(0.1, 30);
    if (fault == Fault::kMachineLost || fault == Fault::kMachineStopped ||
        fault == Fault::kAgentKilled) {
      // The wait includes the time until musterd has received a message from the agent again.
      const absl::Duration unheard = fault == Fault::kAgentKilled ? absl::ZeroDuration() : duration;
      checker_.NodeIsDownUntil(node->node(), timeline_.now() + unheard + absl::Seconds(8));
    }
    switch (fault) {
      case Fault::kAgentKilled:
        Strike(*node);
        return node->Kill();
      case Fault::kAgentTerminated:
        return node->Terminate();
      case Fault::kAgentStopped:
        node->Freeze();
        timeline_.After(duration, [node] { node->Thaw(); });
        return;
      case Fault::kMachineLost:
        Strike(*node);
        lost_.insert(node);
        node->Vanish();
        timeline_.After(duration, [this, node] { lost_.erase(node); });
        return;
      default:
        Strike(*node);
        node->FreezeMachine();
        timeline_.After(duration, [node] { node->ThawMachine(); });
        return;
    }
  }

  bool HarmCoordinator(Fault fault) {
    // Restarts come one after the other; several in a row take as long as kMusterdAway.
    if (!coordinator_.running() || timeline_.now() < undisturbed_until_) return false;
    undisturbed_until_ = timeline_.now() + 2 * kLease;
    timeline_.Tell("fault: ", Name(fault));
    switch (fault) {
      case Fault::kMusterdKilled:
        away_until_ = timeline_.now() + timeline_.Between(0, 3);
        if (timeline_.OneIn(2)) {
          coordinator_.DieAtCommit(timeline_.OneIn(2));
        } else {
          coordinator_.Kill();
        }
        return true;
      case Fault::kMusterdAway:
        away_until_ = timeline_.now() + timeline_.Between(1, 50);
        coordinator_.Kill();
        return true;
      case Fault::kMusterdStopped:
        coordinator_.StandStill(timeline_.Between(0.1, 20));
        return true;
      case Fault::kStoreFails:
        coordinator_.FailCommits(true);
        Undo(timeline_.Between(0.1, 30), [this] { coordinator_.FailCommits(false); });
        return true;
      default: {
        if (!coordinator_.has_backup() || timeline_.OneIn(2)) {
          coordinator_.Backup();
          return false;
        }
        // A job that is unknown in the backup is submitted again. It may not use the folder, which
        // belongs to another job.
        if (!client_.AllAreIn(*coordinator_.backup().Load())) return false;
        away_until_ = timeline_.now() + timeline_.Between(0, 3);
        coordinator_.Kill();
        coordinator_.RestoreBackup();
        ++scene_.databases;
        const store::Image image = *coordinator_.store().Load();
        checker_.Restored(image);
        client_.Forget(image);
        return true;
      }
    }
  }

  bool CutOff(AgentProcess* node, bool up, bool down) {
    if (network_.IsCut(node->node())) return false;
    timeline_.Tell("fault: ", node->node(), " is cut off", up ? " up" : "", down ? " down" : "");
    network_.Cut(node->node(), up, down);
    Undo(timeline_.Between(0.1, 30), [this, node] {
      timeline_.Tell(node->node(), " is reached again");
      network_.Heal(node->node());
    });
    return true;
  }

  // ---- The end, without faults.
  void MakePeace() {
    timeline_.Tell("peace");
    peace_ = true;
    away_until_ = timeline_.now();
    lost_.clear();
    coordinator_.FailCommits(false);
    network_.SetDelay(absl::Milliseconds(20));
    for (auto& node : nodes_) network_.Heal(node->node());
    disk_.full = disk_.gone = false;
    LetGoOn();
  }
  // Resumes halted jobs until all jobs have ended.
  void LetGoOn() {
    if (coordinator_.running()) {
      for (const auto& [number, id] : coordinator_.cluster()->submitted()) {
        const jobs::Job& job = *coordinator_.cluster()->Find(id);
        const bool paused = job.commands.WillBePaused() || job.halted();
        if (!job.terminal() && paused) client_.Resume(id);
      }
    }
    timeline_.After(absl::Seconds(5), [this] { LetGoOn(); });
  }
  bool Over() {
    if (!coordinator_.running() || !client_.Answered() ||
        timeline_.now() < absl::UnixEpoch() + kTrouble + absl::Seconds(5)) {
      return false;
    }
    const cluster::Cluster& cluster = *coordinator_.cluster();
    for (const auto& [number, id] : cluster.submitted()) {
      if (!cluster.Find(id)->terminal()) return false;
    }
    for (const auto& [node, spools] : scene_.spools) {
      if (!spools.empty()) return false;
    }
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->Workers().empty(); });
  }
  void CheckEnd() {
    if (!coordinator_.running()) return timeline_.Wrong("musterd does not run at the end");
    const cluster::Cluster& cluster = *coordinator_.cluster();
    for (const auto& [number, id] : cluster.submitted()) {
      const jobs::Job& job = *cluster.Find(id);
      if (!job.terminal()) {
        timeline_.Wrong("job ", id, " did not end: ", jobs::Name(job.state()), ": ",
                        job.state_reason);
      } else {
        checker_.JobIsOver(job, coordinator_.store());
      }
    }
    for (const auto& node : nodes_) {
      if (!node->Workers().empty()) {
        timeline_.Wrong(node->node(), " has processes although every job is over");
      }
    }
    if (!client_.Answered()) timeline_.Wrong("a call was never answered");
    client_.Check(cluster);
  }

  Timeline timeline_;
  Network network_;
  SharedDisk disk_;
  Checker checker_;
  CoordinatorProcess coordinator_;
  Scene scene_;
  Client client_;
  std::vector<std::unique_ptr<AgentProcess>> nodes_;
  std::vector<Fault> faults_;
  std::map<Fault, uint64_t> happened_;
  std::set<AgentProcess*> lost_;
  absl::Time undisturbed_until_ = absl::InfinitePast();
  absl::Time away_until_ = absl::InfinitePast();
  bool peace_ = false;
};

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return Simulation(options).Run(); }

}  // namespace muster::simulation
