// The whole decision core, driven by a simulated world without threads or time of its own.
#include "coordinator/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/store/memory_store.h"

namespace muster::cluster {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

// A cluster over a memory store; every event is committed before its effects are looked at.
class World {
 public:
  World() { Restart(); }

  // As a coordinator that is killed and started: only what was committed is left.
  void Restart() {
    Options options;
    options.timing.lease = absl::Seconds(10);
    options.new_incarnation = [this] { return absl::StrCat("i", ++incarnations_); };
    cluster_ = std::make_unique<Cluster>(options, *store_.Load(), now());
  }
  void Commit() {
    ASSERT_TRUE(store_.Commit(cluster_->TakeBatch()).ok());
    for (Effect& effect : cluster_->TakeEffects()) effects.push_back(std::move(effect));
  }
  absl::Time now() const { return kStart + absl::Seconds(seconds); }
  Cluster& cluster() { return *cluster_; }
  store::MemoryStore& store() { return store_; }
  const jobs::Job& job(const std::string& id) { return *cluster_->Find(id); }

  void Submit(const std::string& id, uint32_t world_size, uint32_t max_restarts = 3) {
    Submission submission{.job_id = id, .name = id};
    submission.plan.world_size = world_size;
    submission.plan.max_restarts = max_restarts;
    ASSERT_TRUE(cluster_->Submit(submission, now()).ok());
    Commit();
  }
  absl::Status Attach(SessionId session, const AgentHello& hello) {
    const absl::Status status = cluster_->AttachAgent(session, hello, now());
    Commit();
    return status;
  }
  absl::Status AttachWorker(SessionId session, const WorkerId& id) {
    const absl::Status status = cluster_->AttachWorker(session, {.worker = id}, now());
    Commit();
    return status;
  }
  absl::Status Report(SessionId session, const cluster::Report& report) {
    const absl::Status status = cluster_->WorkerReported(session, report, now());
    Commit();
    return status;
  }
  void Exit(SessionId session, const WorkerId& id, int signal) {
    WorkerExit exit{.worker = id};
    exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal};
    cluster_->WorkerExited(session, exit, now());
    Commit();
  }
  // Lets time pass in steps that the coordinator takes for its own regular ones.
  void Pass(double duration) {
    for (const double end = seconds + duration; seconds < end;) {
      seconds += 1;
      cluster_->Tick(now());
      Commit();
    }
  }
  // Effects of one kind since the last call for it, of orders to agents or workers.
  template <typename Send, typename Order>
  std::vector<Order> Orders() {
    std::vector<Order> orders;
    for (const Effect& effect : effects) {
      const auto* send = std::get_if<Send>(&effect);
      const auto* order = send == nullptr ? nullptr : std::get_if<Order>(&send->order);
      if (order != nullptr) orders.push_back(*order);
    }
    return orders;
  }
  std::vector<StartWorker> Starts() { return Orders<SendToAgent, StartWorker>(); }
  std::vector<StopWorker> Stops() { return Orders<SendToAgent, StopWorker>(); }

  double seconds = 0;
  std::vector<Effect> effects;

 private:
  store::MemoryStore store_;
  int incarnations_ = 0;
  std::unique_ptr<Cluster> cluster_;
};

AgentHello Hello(const std::string& node, uint32_t slots, const std::string& incarnation = "a") {
  return {.node = node, .incarnation = incarnation, .host = node, .slots = slots};
}

TEST(Cluster, ALostAgentsWorkersAreGoneAndTheJobMovesOn) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  EXPECT_EQ(world.job("job").state, jobs::State::kStarting);
  world.cluster().Detached(1, world.now());
  world.Commit();
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  for (int i = 0; i < 12; ++i) {
    world.Pass(1);
    world.cluster().AgentHeard(2, world.now());
  }
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  EXPECT_EQ(world.job("job").failures[0].reason,
            "the agent of node 'a' was not heard of for 10s");
}

TEST(Cluster, AHungWorkerIsEndedAndNamed) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  world.Submit("job", 2);
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(world.AttachWorker(10 + rank, world.job("job").Worker(rank)).ok());
    ASSERT_TRUE(world.Report(10 + rank, {.sequence = 1, .what = SessionStarted{}}).ok());
  }
  for (int second = 0; second < 40 && world.Stops().empty(); ++second) {
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.step = 1, .progress = absl::StrCat("step ", second)},
                               world.now());
    world.cluster().WorkerBeat(11, {.step = 1, .progress = "forward"}, world.now());
    world.Pass(1);
  }
  EXPECT_EQ(world.Stops().size(), 2);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].rank, 1);
  EXPECT_EQ(world.job("job").failures[0].reason,
            "made no progress for 30s at step 1 (last: forward)");
}

TEST(Cluster, AfterItsOwnPauseNobodyIsLost) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_TRUE(world.AttachWorker(10, world.job("job").Worker(0)).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = SessionStarted{}}).ok());
  world.Pass(1);
  world.seconds += 1000;
  world.Pass(5);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.Pass(10);
  EXPECT_EQ(world.job("job").failures.size(), 1);
}

TEST(Cluster, AfterARestartWhoDoesNotComeBackInOneLeaseIsLost) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, id).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = SessionStarted{}}).ok());
  world.Restart();
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({id, 7});
  ASSERT_TRUE(world.Attach(2, hello).ok());
  world.Pass(5);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.cluster().AgentHeard(2, world.now());
  world.Pass(6);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].reason, "lost its connection for 10s");
  // Given up: even if it comes back now.
  EXPECT_EQ(RefusalReason(world.AttachWorker(20, id)), "STALE_INCARNATION");
}

TEST(Cluster, AStartThatNeverReachedTheAgentIsRepeated) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_EQ(world.Starts().size(), 1);
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("a", 1)).ok());
  ASSERT_EQ(world.Starts().size(), 2);
  EXPECT_EQ(world.Starts()[1].worker, world.Starts()[0].worker);
}

TEST(Cluster, AnExitThatHappenedMeanwhileIsTakenWithTheHelloASignalFirst) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  world.Submit("job", 2);
  AgentHello hello = Hello("a", 2);
  for (uint32_t rank : {0, 1}) {
    WorkerExit exit{.worker = world.job("job").Worker(rank)};
    exit.exit = rank == 0 ? jobs::Exit{.cause = jobs::Exit::Cause::kCode, .number = 1}
                          : jobs::Exit{.cause = jobs::Exit::Cause::kSignal, .number = 9};
    hello.exits.push_back(exit);
  }
  world.Restart();
  ASSERT_TRUE(world.Attach(2, hello).ok());
  EXPECT_EQ((world.Orders<SendToAgent, AckExit>().size()), 2);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").failures[0].rank, 1);
}

TEST(Cluster, CheckpointsAreToldAgainToARankThatComesBack) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, id).ok());
  for (uint64_t n = 1; n <= 4; ++n) {
    ASSERT_TRUE(
        world.Report(10, {.sequence = n, .what = CheckpointWritten{n, absl::StrCat("p", n)}}).ok());
  }
  world.Restart();
  world.effects.clear();
  ASSERT_TRUE(world.AttachWorker(11, id).ok());
  const auto told = world.Orders<SendToWorker, CheckpointRecorded>();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].path, "p4");
  EXPECT_EQ(told[0].remove, (std::vector<std::string>{"p1"}));
  const auto welcome = world.Orders<SendToWorker, WelcomeWorker>();
  EXPECT_EQ(welcome[0].checkpoints.size(), 3);
  EXPECT_EQ(welcome[0].acked_report, 4);
}

TEST(Cluster, ReportsOfARankThatIsNotCurrentChangeNothing) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, id).ok());
  world.Exit(1, id, 9);
  ASSERT_EQ(world.job("job").generation, 2);
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = CheckpointWritten{5, "late"}}).ok());
  EXPECT_TRUE(world.job("job").checkpoints.empty());
}

TEST(Cluster, DrainingANodeInterruptsItsJobsWithoutARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("local", 1)).ok());
  world.Submit("job", 1, 0);
  const WorkerId id = world.job("job").Worker(0);
  world.cluster().Drain("local", world.now());
  world.Commit();
  EXPECT_EQ(world.Stops().size(), 1);
  EXPECT_TRUE(world.cluster().HasProcesses("local"));
  world.Exit(1, id, 15);
  EXPECT_FALSE(world.cluster().HasProcesses("local"));
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("local", 1, "b")).ok());
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Cluster, VersionsNeverGoBackAcrossRestarts) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_TRUE(world.AttachWorker(10, world.job("job").Worker(0)).ok());
  uint64_t shown = 0;
  for (int i = 0; i < 2500; ++i) {
    world.cluster().WorkerBeat(10, {.step = static_cast<uint64_t>(i)}, world.now());
    world.Commit();
    ASSERT_GE(world.job("job").version, shown);
    shown = world.job("job").version;
  }
  world.Restart();
  EXPECT_GT(world.job("job").version, shown);
}

// A simulated cluster of agents that do as they are told, in which everything happens in any order: workers
// attach, report, finish, die; agents break off, come back, start anew; the coordinator is restarted; time
// passes. Whatever happens: a slot runs at most one process that counts, a rank has one owner, terminal states
// never reopen, generations only grow, and at the end, left in peace, every job ends.
class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {}

  void Run() {
    for (int event = 0; event < 250; ++event) {
      Event();
      if (testing::Test::HasFatalFailure()) return;
      Obey();
      Check();
      if (testing::Test::HasFatalFailure()) return;
    }
    Peace();
  }

 private:
  struct Process {
    WorkerId id;
    SessionId session = 0;
    uint64_t reports = 0;
    bool finished = false;
  };
  struct Node {
    AgentHello hello;
    SessionId session = 0;
    std::map<std::string, Process> processes;  // by incarnation
    std::vector<WorkerExit> unacked;
  };

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void Event() {
    Node& node = nodes_[absl::StrCat("n", Pick(3))];
    switch (Pick(12)) {
      case 0:
        if (jobs_ < 6) world_.Submit(absl::StrCat("j", jobs_++), 1 + Pick(4), Pick(3));
        break;
      case 1:
        Connect(&node);
        break;
      case 2:
        if (node.session != 0) world_.cluster().Detached(std::exchange(node.session, 0), world_.now());
        break;
      case 3:
        if (Pick(4) == 0) {  // The agent is killed, and its workers with it.
          world_.cluster().Detached(std::exchange(node.session, 0), world_.now());
          for (auto& [key, process] : node.processes) {
            world_.cluster().Detached(process.session, world_.now());
          }
          node = Node();
        }
        break;
      case 4:
        if (Pick(5) == 0) Restart();
        break;
      case 5:
        if (Pick(4) == 0 && jobs_ > 0) {
          (void)world_.cluster().Stop(absl::StrCat("j", Pick(jobs_)), "", "", world_.now());
        }
        break;
      case 6:
        world_.Pass(Pick(8));
        break;
      case 7:
        if (!node.processes.empty() && Pick(3) == 0) Die(&node, node.processes.begin()->first, 9);
        break;
      default:
        for (auto& [key, process] : node.processes) Work(&node, &process);
        break;
    }
    ExitFinished();
    world_.Commit();
  }

  void Connect(Node* node) {
    const std::string name = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) {
                               return &n.second == node;
                             })->first;
    if (node->hello.incarnation.empty()) {
      node->hello = Hello(name, 2, absl::StrCat("agent", ++incarnations_));
    }
    AgentHello hello = node->hello;
    for (const auto& [key, process] : node->processes) hello.running.push_back({process.id, 1});
    hello.exits = node->unacked;
    node->session = ++sessions_;
    ASSERT_TRUE(world_.Attach(node->session, hello).ok());
  }

  void Restart() {
    world_.Restart();
    for (auto& [name, node] : nodes_) {
      node.session = 0;
      for (auto& [key, process] : node.processes) process.session = 0;
    }
  }

  void Work(Node* node, Process* process) {
    if (process->finished) return;
    if (process->session == 0) {
      const SessionId session = ++sessions_;
      if (world_.AttachWorker(session, process->id).ok()) process->session = session;
      return;
    }
    cluster::Report report{.sequence = process->reports + 1};
    switch (Pick(6)) {
      case 0:
        report.what = jobs::ReportedFailure{.reason = "r", .consequence = Pick(2) == 0};
        break;
      case 1:
        report.what = cluster::Finished{};
        process->finished = true;
        break;
      case 2:
        report.what = CheckpointWritten{process->reports, absl::StrCat("p", ++incarnations_)};
        break;
      default:
        report.what = SessionStarted{};
        break;
    }
    ++process->reports;
    ASSERT_TRUE(world_.Report(process->session, report).ok());
  }

  // Processes that finished exit.
  void ExitFinished() {
    for (auto& [name, node] : nodes_) {
      std::vector<std::string> over;
      for (const auto& [key, process] : node.processes) {
        if (process.finished && Pick(2) == 0) over.push_back(key);
      }
      for (const std::string& key : over) Die(&node, key, 0);
    }
  }

  void Die(Node* node, const std::string& key, int signal) {
    const Process process = node->processes.at(key);
    node->processes.erase(key);
    if (process.session != 0) world_.cluster().Detached(process.session, world_.now());
    WorkerExit exit{.worker = process.id};
    if (signal != 0) exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal};
    node->unacked.push_back(exit);
    if (node->session != 0) world_.cluster().WorkerExited(node->session, exit, world_.now());
    world_.Commit();
  }

  // Agents and workers do as they were told, until nobody is told anything more.
  void Obey() {
    while (!world_.effects.empty()) {
      for (const Effect& effect : std::exchange(world_.effects, {})) {
        if (const auto* send = std::get_if<SendToAgent>(&effect)) Obey(*send);
        if (const auto* close = std::get_if<CloseSession>(&effect)) {
          for (auto& [name, node] : nodes_) {
            if (node.session == close->session) node.session = 0;
            for (auto& [key, process] : node.processes) {
              if (process.session == close->session) process.session = 0;
            }
          }
        }
      }
    }
  }
  void Obey(const SendToAgent& send) {
    for (auto& [name, node] : nodes_) {
      if (node.session != send.session) continue;
      if (const auto* start = std::get_if<StartWorker>(&send.order)) {
        const WorkerId& id = start->worker;
        const bool ended = std::any_of(node.unacked.begin(), node.unacked.end(),
                                       [&](const WorkerExit& e) { return e.worker == id; });
        if (ended) continue;
        ASSERT_LT(start->slot, node.hello.slots);
        node.processes.try_emplace(id.incarnation, Process{.id = id});
        const auto [owner, first] = owners_.try_emplace(
            std::make_pair(absl::StrCat(id.job, "/", id.generation), id.rank), id.incarnation);
        ASSERT_EQ(owner->second, id.incarnation) << "a rank with two owners";
      } else if (const auto* stop = std::get_if<StopWorker>(&send.order)) {
        if (node.processes.contains(stop->worker.incarnation)) {
          Die(&node, stop->worker.incarnation, 15);
        } else {
          WorkerExit unknown{.worker = stop->worker};
          unknown.exit.cause = jobs::Exit::Cause::kStartError;
          world_.cluster().WorkerExited(node.session, unknown, world_.now());
          world_.Commit();
        }
      } else if (const auto* ack = std::get_if<AckExit>(&send.order)) {
        std::erase_if(node.unacked, [&](const WorkerExit& e) { return e.worker == ack->worker; });
      }
    }
  }

  void Check() {
    std::set<std::pair<std::string, uint32_t>> used;
    for (const auto& [number, id] : world_.cluster().submitted()) {
      const jobs::Job& job = world_.job(id);
      auto& [generation, terminal] = seen_[id];
      ASSERT_GE(job.generation, generation);
      generation = job.generation;
      if (terminal.has_value()) {
        ASSERT_EQ(job.state, *terminal) << id;
      }
      if (job.terminal()) terminal = job.state;
      if (!job.live) continue;
      for (const jobs::Rank& rank : job.ranks) {
        if (rank.exited) continue;
        ASSERT_TRUE(used.insert({rank.node, rank.slot}).second) << "a slot is used twice";
        ASSERT_LT(rank.slot, 2);
      }
    }
  }

  // Every agent stays, every process does its work: all jobs must end.
  void Peace() {
    for (int round = 0; round < 400; ++round) {
      bool all_over = true;
      for (const auto& [number, id] : world_.cluster().submitted()) {
        all_over = all_over && world_.job(id).terminal();
      }
      if (all_over) return;
      for (int n = 0; n < 3; ++n) {
        Node& node = nodes_[absl::StrCat("n", n)];
        if (node.session == 0) Connect(&node);
        world_.cluster().AgentHeard(node.session, world_.now());
        for (auto& [key, process] : node.processes) {
          if (process.session == 0) {
            const SessionId session = ++sessions_;
            if (world_.AttachWorker(session, process.id).ok()) process.session = session;
          } else if (!process.finished) {
            process.finished = true;
            ASSERT_TRUE(world_
                            .Report(process.session,
                                    {.sequence = ++process.reports, .what = cluster::Finished{}})
                            .ok());
          }
        }
      }
      ExitFinished();
      Obey();
      world_.Pass(1);
      Obey();
      Check();
    }
    for (const auto& [number, id] : world_.cluster().submitted()) {
      const jobs::Job& job = world_.job(id);
      EXPECT_TRUE(job.terminal()) << id << " " << jobs::Name(job.state) << " " << job.state_reason;
    }
  }

  std::mt19937 random_;
  World world_;
  std::map<std::string, Node> nodes_;
  SessionId sessions_ = 0;
  uint32_t jobs_ = 0;
  int incarnations_ = 0;
  std::map<std::pair<std::string, uint32_t>, std::string> owners_;
  std::map<std::string, std::pair<uint64_t, std::optional<jobs::State>>> seen_;
};

TEST(Cluster, HoldsItsInvariantsInASimulatedCluster) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster::cluster
