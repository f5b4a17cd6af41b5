#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

// A simulated cluster. Events come in any order: workers attach, report, finish and die; agents
// break off, come back and restart; the coordinator is restarted; time passes. The simulation
// checks:
// - A slot runs at most one process that counts, and a rank has one owner.
// - Terminal states never reopen, and generations only grow.
// - A deleted job had ended and never comes back.
// - Webhook messages report every change of a state.
// - Every job ends after the random events stop.
class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {
    world_.webhooks = {"http://a/"};
    world_.Restart();
  }

  void Run() {
    for (int event = 0; event < 250; ++event) {
      Event();
      if (testing::Test::HasFatalFailure()) return;
      Obey();
      Check();
      if (testing::Test::HasFatalFailure()) return;
    }
    Peace();
    CheckMessages();
  }

 private:
  struct Process {
    WorkerId id;
    PeerStreamId stream = 0;
    uint64_t reports = 0;
    bool finished = false;
  };
  struct Node {
    AgentHello hello;
    PeerStreamId stream = 0;
    std::map<std::string, Process> processes;  // by incarnation
    std::vector<WorkerExit> unacked;
  };

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void Event() {
    Node& node = nodes_[absl::StrCat("n", Pick(3))];
    switch (Pick(12)) {
      case 0:
        if (jobs_ < 6)
          world_.Submit(absl::StrCat("j", jobs_++), 1 + Pick(4), Pick(3),
                        static_cast<int32_t>(Pick(3)));
        break;
      case 1:
        Connect(&node);
        break;
      case 2:
        if (node.stream != 0)
          world_.cluster().Detached(std::exchange(node.stream, 0), world_.now());
        break;
      case 3:
        if (Pick(4) == 0) {  // The agent is killed, and its workers with it.
          world_.cluster().Detached(std::exchange(node.stream, 0), world_.now());
          for (auto& [key, process] : node.processes) {
            world_.cluster().Detached(process.stream, world_.now());
          }
          node = Node();
        }
        break;
      case 4:
        if (Pick(5) == 0) Restart();
        break;
      case 5:
        if (Pick(4) == 0 && jobs_ > 0) {
          (void)world_.cluster().Command({.job_id = absl::StrCat("j", Pick(jobs_))}, world_.now());
        }
        if (Pick(4) == 0 && jobs_ > 0) Delete(absl::StrCat("j", Pick(jobs_)));
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

  void Delete(const std::string& id) {
    const jobs::Job* job = world_.cluster().Find(id);
    const bool may = job != nullptr && job->terminal();
    ASSERT_EQ(world_.cluster().Delete({id, "", "", ""}, world_.now()).ok(), may);
    if (may) deleted_.insert(id);
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
    node->stream = ++streams_;
    ASSERT_TRUE(world_.Attach(node->stream, hello).ok());
  }

  void Restart() {
    world_.Restart();
    for (auto& [name, node] : nodes_) {
      node.stream = 0;
      for (auto& [key, process] : node.processes) process.stream = 0;
    }
  }

  void Work(Node* node, Process* process) {
    if (process->finished) return;
    if (process->stream == 0) {
      const PeerStreamId stream = ++streams_;
      if (world_.AttachWorker(stream, process->id).ok()) process->stream = stream;
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
    ASSERT_TRUE(world_.Report(process->stream, report).ok());
  }

  // Lets finished processes exit.
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
    if (process.stream != 0) world_.cluster().Detached(process.stream, world_.now());
    WorkerExit exit{.worker = process.id};
    if (signal != 0) exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal};
    node->unacked.push_back(exit);
    if (node->stream != 0) world_.cluster().Handle(node->stream, exit, world_.now());
    world_.Commit();
  }

  // Lets agents and workers follow their orders until there are no more orders.
  void Obey() {
    while (!world_.effects.empty()) {
      for (const Effect& effect : std::exchange(world_.effects, {})) {
        if (const auto* send = std::get_if<SendToAgent>(&effect)) Obey(*send);
        if (const auto* close = std::get_if<CloseStream>(&effect)) {
          for (auto& [name, node] : nodes_) {
            if (node.stream == close->stream) node.stream = 0;
            for (auto& [key, process] : node.processes) {
              if (process.stream == close->stream) process.stream = 0;
            }
          }
        }
      }
    }
  }
  void Obey(const SendToAgent& send) {
    for (auto& [name, node] : nodes_) {
      if (node.stream != send.stream) continue;
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
          world_.cluster().Handle(node.stream, unknown, world_.now());
          world_.Commit();
        }
      } else if (const auto* ack = std::get_if<AckExit>(&send.order)) {
        std::erase_if(node.unacked, [&](const WorkerExit& e) { return e.worker == ack->worker; });
      }
    }
  }

  void Check() {
    for (const std::string& id : deleted_) ASSERT_EQ(world_.cluster().Find(id), nullptr);
    std::set<std::pair<std::string, uint32_t>> used;
    for (const auto& [number, id] : world_.cluster().submitted()) {
      const jobs::Job& job = world_.job(id);
      auto& [generation, terminal] = seen_[id];
      ASSERT_GE(job.generation, generation);
      generation = job.generation;
      if (terminal.has_value()) {
        ASSERT_EQ(job.state(), *terminal) << id;
      }
      if (job.terminal()) terminal = job.state();
      if (!job.live()) continue;
      for (const jobs::Rank& rank : job.ranks) {
        if (rank.exited) continue;
        ASSERT_TRUE(used.insert({rank.node, rank.slot}).second) << "a slot is used twice";
        ASSERT_LT(rank.slot, 2);
      }
    }
  }

  // Checks that the stored messages about each job lead from its submission to its present state.
  void CheckMessages() {
    std::map<std::string, std::string> states;
    const store::Image image = *world_.store().Load();
    for (const store::DeliveryRow& message : image.deliveries) {
      const bool is_new = absl::StrContains(message.body, "\"former_state\":null");
      std::string& state = states[message.job_id];
      const std::string former = absl::StrCat("\"former_state\":\"", state, "\"");
      ASSERT_TRUE(is_new ? state.empty() : absl::StrContains(message.body, former)) << message.body;
      const std::string key = "\"state\":\"";
      const size_t begin = message.body.find(key) + key.size();
      state = message.body.substr(begin, message.body.find('"', begin) - begin);
    }
    for (const auto& [number, id] : world_.cluster().submitted()) {
      ASSERT_EQ(states[id], jobs::Name(world_.job(id).state())) << id;
    }
  }

  // Lets every agent stay and every process do its work: all jobs must end.
  void Peace() {
    for (int round = 0; round < 400; ++round) {
      bool all_over = true;
      for (const auto& [number, id] : world_.cluster().submitted()) {
        all_over = all_over && world_.job(id).terminal();
      }
      if (all_over) return;
      for (int n = 0; n < 3; ++n) {
        Node& node = nodes_[absl::StrCat("n", n)];
        if (node.stream == 0) Connect(&node);
        world_.cluster().AgentHeard(node.stream, world_.now());
        for (auto& [key, process] : node.processes) {
          if (process.stream == 0) {
            const PeerStreamId stream = ++streams_;
            if (world_.AttachWorker(stream, process.id).ok()) process.stream = stream;
          } else if (!process.finished) {
            process.finished = true;
            ASSERT_TRUE(world_
                            .Report(process.stream,
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
      EXPECT_TRUE(job.terminal()) << id << " " << jobs::Name(job.state()) << " "
                                  << job.state_reason;
    }
  }

  std::mt19937 random_;
  World world_;
  std::map<std::string, Node> nodes_;
  PeerStreamId streams_ = 0;
  uint32_t jobs_ = 0;
  int incarnations_ = 0;
  std::set<std::string> deleted_;
  std::map<std::pair<std::string, uint32_t>, std::string> owners_;
  std::map<std::string, std::pair<uint64_t, std::optional<jobs::State>>> seen_;
};

TEST(SimulatedCluster, HoldsItsInvariants) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster::cluster
