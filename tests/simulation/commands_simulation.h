// A simulation of the command log from end to end, without processes. It has the coordinator's
// whole core, and for each rank the roll call's decision and the command schedule of workers. The
// network delays, duplicates, reorders and loses messages, and everything may crash.
//
// Always true:
// - Each command that a client knows takes effect exactly once in the history that counts: on all
//   ranks at the same step, which is the acknowledged one.
// - A command that was taken back never takes effect.
// - One request makes one command.
#ifndef MUSTER_TESTS_SIMULATION_COMMANDS_SIMULATION_H_
#define MUSTER_TESTS_SIMULATION_COMMANDS_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::simulation {

// Planted mistakes that the simulation must find.
enum class Bug {
  kNone,
  // Orders are sent before their cause is durable.
  kLatePersist,
  // The ranks agree on the commands that all ranks but the last hold.
  kMinOfSome,
  // A restarted coordinator does not know which requests it has answered.
  kLostRequestIds,
};

// The simulation of one schedule, which follows from its seed. Used once, by one thread.
class CommandsSimulation {
 public:
  // story: lines that describe what happened; may be null.
  CommandsSimulation(uint32_t seed, Bug bug, std::string* story = nullptr)
      : random_(seed), bug_(bug), story_(story) {
    world_.tamper = [this](store::Image& image) {
      if (bug_ == Bug::kLostRequestIds) image.requests.clear();
    };
  }

  // Returns the first violation; empty: there was none.
  std::string Run();

 private:
  static constexpr char kJob[] = "j";

  // Pairs (steps done, command) in their order.
  using History = std::vector<std::pair<int64_t, int64_t>>;
  struct Rank {
    cluster::WorkerId id;
    cluster::PeerStreamId session = 0;
    std::deque<cluster::WorkerOrder> coming;
    bool welcomed = false;
    uint64_t needed = 0;
    std::string restore_from;
    std::vector<train::Command> held;
    std::deque<cluster::Report> unacked;
    size_t sent = 0;  // of unacked, on this session
    uint64_t reports = 0;

    train::CommandSchedule schedule;
    History history;
  };
  struct Saved {
    int64_t step = 0;
    train::CommandSchedule::Position position;
    History history;
  };
  struct Ask {
    std::string request_id;
    commands::Command command;
    std::set<uint64_t> answers;
  };
  // The state of all ranks together.
  struct Session {
    int64_t step = 0;
    bool paused = false;
    int64_t saved_step = -1;
  };

  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  Rank& AnyRank() { return *std::next(ranks_.begin(), Pick(static_cast<uint32_t>(ranks_.size()))); }
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  template <typename... Parts>
  void Tell(const Parts&... parts) {
    if (story_ != nullptr) absl::StrAppend(story_, parts..., "\n");
  }
  cluster::Cluster& core() { return world_.cluster(); }
  const jobs::Job& job() { return world_.job(kJob); }

  // ---- The coordinator.
  void Commit();
  void Store();
  void CrashCoordinator();

  // ---- The agent, which is always there.
  void ConnectAgent();
  void Obey(const cluster::Effect& effect);
  void Obey(const cluster::AgentOrder& order);
  void StopWhatWasToStop();
  void Die(cluster::WorkerId id, int signal);

  // ---- A worker's stream.
  void Disconnect(Rank& rank);
  void Connect(Rank& rank);
  void Receive(Rank& rank);
  // Notes that the coordinator has the rank's reports up to `sequence`.
  static void Acknowledged(Rank& rank, uint64_t sequence);
  void Send(Rank& rank);
  template <typename What>
  void Report(Rank& rank, const What& what) {
    rank.unacked.push_back({.sequence = ++rank.reports, .what = what});
  }

  // ---- The ranks together (commands_ranks.cc).
  Rank* RankNumber(uint32_t number);
  // Returns all processes of the generation, in order. Empty unless the processes are complete and
  // hold what they need.
  std::vector<Rank*> Together();
  void Begin(const std::vector<Rank*>& all);
  void Boundary();
  void CarryOut(Rank& leader, const train::CommandSchedule::Due& due);
  void Save(Rank& leader);

  // ---- The client.
  void NewAsk();
  void Call(Ask& ask);

  // ---- What happens.
  void Event();
  void Move(Rank& rank);

  // ---- The end (commands_end.cc). Lets a second pass, because a job that has failed more than
  // once is started after a pause.
  void WaitASecond();
  // Runs without faults until every request has come to its end.
  void Peace();
  // True while a checkpoint command that has taken effect has no outcome.
  bool HasUnfinished();
  bool AllOver();
  void Check();

  std::mt19937 random_;
  const Bug bug_;
  std::string* const story_;
  cluster::World world_;
  std::vector<store::Batch> unstored_;
  cluster::PeerStreamId sessions_ = 0;
  cluster::PeerStreamId agent_session_ = 0;
  std::vector<cluster::WorkerExit> exits_;
  std::vector<cluster::WorkerId> to_stop_;
  std::list<Rank> ranks_;
  std::optional<Session> session_;
  std::map<std::string, Saved> disk_;
  std::deque<Ask> asks_;
  std::string wrong_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COMMANDS_SIMULATION_H_
