// The command log from end to end without processes: the coordinator's whole core, and per rank the
// roll call's decision and the command schedule that workers run, over a network that delays,
// duplicates, reorders and loses, with crashes of everything.
// Seeded: a schedule that fails prints its number.
//
// Whatever happens: each command that a client was told of takes effect exactly once in the history
// that counts, at one step, the acknowledged one, on all ranks; what was taken back never does;
// one request makes one command.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "tests/simulation/command_from_delivery.h"
#include "worker/train/command_schedule.h"
#include "worker/train/roll_call_plan.h"

namespace muster {
namespace {

using cluster::SessionId;
using cluster::WorkerId;
using commands::Kind;

// Mistakes that a harness worth its name finds.
enum class Bug {
  kNone,
  // Orders leave before what they follow from is durable.
  kLatePersist,
  // The ranks agree on what all but the last of them hold.
  kMinOfSome,
  // A restarted coordinator does not know which requests it has answered.
  kLostRequestIds,
};

constexpr char kJob[] = "j";

class Simulation {
 public:
  // story: what happened, in lines; may be null.
  Simulation(uint32_t seed, Bug bug, std::string* story = nullptr)
      : random_(seed), bug_(bug), story_(story) {
    world_.tamper = [this](store::Image& image) {
      if (bug_ == Bug::kLostRequestIds) image.requests.clear();
    };
  }

  // What went wrong; empty when nothing did.
  std::string Run() {
    const uint32_t ranks = 1 + Pick(4);
    ConnectAgent();
    cluster::Submission submission{.job_id = kJob, .name = kJob};
    submission.plan.world_size = ranks;
    submission.plan.max_restarts = 1000000;
    if (!core().Submit(submission, world_.now()).ok()) Wrong("the job is refused");
    Commit();
    Store();
    for (int event = 0; event < 80 && wrong_.empty(); ++event) Event();
    if (wrong_.empty()) Peace();
    if (wrong_.empty()) Check();
    return wrong_;
  }

 private:
  // (Steps done, command) in their order.
  using History = std::vector<std::pair<int64_t, int64_t>>;
  struct Rank {
    WorkerId id;
    SessionId session = 0;
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
  void Commit() {
    unstored_.push_back(core().TakeBatch());
    std::vector<cluster::Effect> effects = core().TakeEffects();
    if (bug_ != Bug::kLatePersist || Pick(3) != 0) Store();
    for (const cluster::Effect& effect : effects) Obey(effect);
  }
  void Store() {
    for (store::Batch& batch : unstored_) ASSERT_TRUE(world_.store().Commit(batch).ok());
    unstored_.clear();
  }
  void CrashCoordinator() {
    Tell("the coordinator crashes");
    unstored_.clear();
    world_.Restart();
    agent_session_ = 0;
    for (Rank& rank : ranks_) Disconnect(rank);
    ConnectAgent();
  }

  // ---- The agent, which is always there.
  void ConnectAgent() {
    agent_session_ = ++sessions_;
    cluster::AgentHello hello = cluster::Hello("n", 4);
    for (const Rank& rank : ranks_) hello.running.push_back({rank.id, 1});
    hello.exits = exits_;
    if (!core().AttachAgent(agent_session_, hello, world_.now()).ok()) {
      Wrong("the agent is refused");
    }
    Commit();
  }
  void Obey(const cluster::Effect& effect) {
    if (const auto* say = std::get_if<cluster::Say>(&effect)) Tell("musterd: ", say->text);
    if (const auto* send = std::get_if<cluster::SendToAgent>(&effect)) {
      if (send->session != agent_session_) return;
      if (const auto* start = std::get_if<cluster::StartWorker>(&send->order)) {
        for (const Rank& rank : ranks_) {
          if (rank.id == start->worker) return;
        }
        ranks_.push_back({.id = start->worker});
      } else if (const auto* stop = std::get_if<cluster::StopWorker>(&send->order)) {
        to_stop_.push_back(stop->worker);
      } else if (const auto* ack = std::get_if<cluster::AckExit>(&send->order)) {
        std::erase_if(exits_, [&](const auto& exit) { return exit.worker == ack->worker; });
      }
    } else if (const auto* send = std::get_if<cluster::SendToWorker>(&effect)) {
      for (Rank& rank : ranks_) {
        if (rank.session == send->session) rank.coming.push_back(send->order);
      }
    } else if (const auto* close = std::get_if<cluster::CloseSession>(&effect)) {
      for (Rank& rank : ranks_) {
        if (rank.session == close->session) Disconnect(rank);
      }
    }
  }
  void StopWhatWasToStop() {
    while (!to_stop_.empty()) {
      const WorkerId id = to_stop_.back();
      to_stop_.pop_back();
      Die(id, 15);
    }
  }
  void Die(WorkerId id, int signal) {
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& one) { return one.id == id; });
    cluster::WorkerExit exit{.worker = id};
    exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal};
    if (rank != ranks_.end()) {
      if (rank->session != 0) core().Detached(rank->session, world_.now());
      ranks_.erase(rank);
      exits_.push_back(exit);
    }
    session_ = std::nullopt;  // the others cannot go on without it
    core().WorkerExited(agent_session_, exit, world_.now());
    Commit();
  }

  // ---- A worker's stream.
  void Disconnect(Rank& rank) {
    rank.session = 0;
    rank.coming.clear();
    rank.sent = 0;
  }
  void Connect(Rank& rank) {
    rank.session = ++sessions_;
    if (!core()
             .AttachWorker(rank.session, {.worker = rank.id, .newest_command = rank.held.size()},
                           world_.now())
             .ok()) {
      rank.session = 0;
    }
    Commit();
  }
  void Receive(Rank& rank) {
    if (rank.coming.empty()) return;
    const cluster::WorkerOrder order = rank.coming.front();
    if (Pick(10) != 0) rank.coming.pop_front();  // else it comes again
    if (const auto* welcome = std::get_if<cluster::WelcomeWorker>(&order)) {
      if (!rank.welcomed) {
        rank.needed = welcome->newest_command;
        if (!welcome->checkpoints.empty()) rank.restore_from = welcome->checkpoints[0].path;
      }
      rank.welcomed = true;
      while (!rank.unacked.empty() && rank.unacked.front().sequence <= welcome->acked_report) {
        rank.unacked.pop_front();
      }
      rank.sent = 0;
    } else if (const auto* delivery = std::get_if<commands::Delivery>(&order)) {
      if (delivery->command.number == rank.held.size() + 1) {
        rank.held.push_back(simulation::CommandFromDelivery(*delivery));
        Tell("rank ", rank.id.rank, " of generation ", rank.id.generation, " holds ",
             delivery->command.number, ", ", commands::Name(delivery->command.kind), ", when ",
             static_cast<int>(delivery->when), ", at ", rank.held.back().at_step.value_or(-1));
      }
    } else if (const auto* ack = std::get_if<cluster::AckReport>(&order)) {
      while (!rank.unacked.empty() && rank.unacked.front().sequence <= ack->sequence) {
        rank.unacked.pop_front();
        if (rank.sent > 0) --rank.sent;
      }
    }
  }
  void Send(Rank& rank) {
    if (!rank.welcomed || rank.session == 0 || rank.sent >= rank.unacked.size()) return;
    const cluster::Report report = rank.unacked[rank.sent++];
    if (!core().WorkerReported(rank.session, report, world_.now()).ok()) Disconnect(rank);
    Commit();
  }
  template <typename What>
  void Report(Rank& rank, const What& what) {
    rank.unacked.push_back({.sequence = ++rank.reports, .what = what});
  }

  // ---- The ranks together.
  struct Session {
    int64_t step = 0;
    bool paused = false;
    int64_t saved_step = -1;
  };
  Rank* RankNumber(uint32_t number) {
    for (Rank& rank : ranks_) {
      if (rank.id.rank == number && rank.id.generation == job().generation) return &rank;
    }
    return nullptr;
  }
  // All processes of the generation, in order;
  // empty unless they are complete and hold what they need.
  std::vector<Rank*> Together() {
    std::vector<Rank*> all;
    if (!job().live || job().ending) return {};
    for (uint32_t number = 0; number < job().ranks.size(); ++number) {
      Rank* rank = RankNumber(number);
      if (rank == nullptr || !rank->welcomed || rank->held.size() < rank->needed) return {};
      all.push_back(rank);
    }
    return all;
  }
  void Begin(const std::vector<Rank*>& all) {
    session_.emplace();
    const auto saved = disk_.find(all[0]->restore_from);
    for (Rank* rank : all) {
      if (saved != disk_.end()) {
        session_->step = session_->saved_step = saved->second.step;
        Tell("goes on from ", saved->first);
        rank->schedule = train::CommandSchedule(saved->second.position);
        rank->history = saved->second.history;
      }
      Report(*rank, cluster::SessionStarted{.step = static_cast<uint64_t>(session_->step)});
    }
  }
  void Boundary() {
    const std::vector<Rank*> all = Together();
    if (all.empty()) return;
    if (!session_.has_value()) return Begin(all);
    std::vector<train::RollCallRecord> table;
    for (const Rank* rank : all) {
      table.push_back(
          {.step = session_->step + 1, .newest_command = static_cast<int64_t>(rank->held.size())});
    }
    if (bug_ == Bug::kMinOfSome && table.size() > 1) table.pop_back();
    const auto plan = train::Decide(table);
    if (!plan.ok()) return Wrong(std::string(plan.status().message()));
    for (size_t i = all.size(); i-- > 0;) {
      Rank& rank = *all[i];
      rank.schedule.TakeIn(plan->apply_commands, session_->step, [&](int64_t number) {
        if (number <= static_cast<int64_t>(rank.held.size())) return rank.held[number - 1];
        Wrong(absl::StrCat("rank ", rank.id.rank, " does not hold command ", number));
        return train::Command{.number = number};
      });
      while (const auto due = rank.schedule.Next(session_->step)) {
        if (!std::holds_alternative<train::CancelCommand>(due->command.what)) {
          rank.history.emplace_back(session_->step, due->command.number);
        }
        if (i == 0) CarryOut(rank, *due);
        Tell("rank ", rank.id.rank, " after step ", session_->step, ": ", due->command.number,
             due->command.replay ? " again" : "", due->cancels ? ", cancels" : "");
      }
    }
    if (!session_->paused) ++session_->step;
    if (Pick(6) == 0) Save(*all[0]);
  }
  void CarryOut(Rank& leader, const train::CommandSchedule::Due& due) {
    const auto number = static_cast<uint64_t>(due.command.number);
    Report(leader, cluster::CommandApplied{number, static_cast<uint64_t>(session_->step)});
    const commands::Outcome refused{.code = absl::StatusCode::kCancelled};
    commands::Outcome outcome;
    if (const auto* cancel = std::get_if<train::CancelCommand>(&due.command.what)) {
      if (due.cancels) {
        Report(leader, cluster::CommandFinished{static_cast<uint64_t>(cancel->target), refused});
      } else {
        outcome = refused;
      }
    }
    if (std::holds_alternative<train::PauseCommand>(due.command.what)) session_->paused = true;
    if (std::holds_alternative<train::ResumeCommand>(due.command.what)) session_->paused = false;
    if (std::holds_alternative<train::SaveCheckpointCommand>(due.command.what)) Save(leader);
    Report(leader, cluster::CommandFinished{number, outcome});
  }
  void Save(Rank& leader) {
    if (std::exchange(session_->saved_step, session_->step) == session_->step) return;
    const std::string path = absl::StrCat("step-", session_->step, "-g", job().generation);
    Tell("saves ", path, ", taken in ", leader.schedule.position().taken);
    disk_[path] = {session_->step, leader.schedule.position(), leader.history};
    Report(leader, cluster::CheckpointWritten{static_cast<uint64_t>(session_->step), path});
  }

  // ---- The client.
  void NewAsk() {
    if (asks_.size() >= 12) return;
    Ask ask{.request_id = absl::StrCat("request-", asks_.size())};
    constexpr Kind kKinds[] = {Kind::kSetLearningRate, Kind::kSetTrainability,
                               Kind::kSetLearningRate, Kind::kSaveCheckpoint,
                               Kind::kPause,           Kind::kResume,
                               Kind::kCancel};
    ask.command.kind = kKinds[Pick(std::size(kKinds))];
    ask.command.contents = ask.request_id;
    if (Pick(4) == 0 && ask.command.kind != Kind::kResume && ask.command.kind != Kind::kCancel) {
      ask.command.at_step = (session_.has_value() ? session_->step : 0) + Pick(8);
    }
    if (ask.command.kind == Kind::kCancel) {
      ask.command.target = 1 + Pick(static_cast<uint32_t>(job().commands.commands().size()) + 1);
    }
    asks_.push_back(ask);
  }
  void Call(Ask& ask) {
    const cluster::CommandRequest request{.job_id = kJob,
                                          .request_id = ask.request_id,
                                          .fingerprint = ask.request_id,
                                          .command = ask.command};
    const auto number = ask.command.kind == Kind::kCancel ? core().Cancel(request, world_.now())
                                                          : core().Command(request, world_.now());
    if (Pick(8) == 0) return CrashCoordinator();  // before it is durable
    Commit();
    if (number.ok() && Pick(3) != 0) ask.answers.insert(*number);  // else the answer is lost
  }

  void Event() {
    switch (Pick(16)) {
      case 0:
      case 1:
        NewAsk();
        [[fallthrough]];
      case 2:
        if (!asks_.empty()) Call(asks_[Pick(static_cast<uint32_t>(asks_.size()))]);
        break;
      case 3:
        if (Pick(5) == 0) CrashCoordinator();
        break;
      case 4:
        if (Pick(4) == 0 && !ranks_.empty()) {
          Die(AnyRank().id, 9);
        }
        break;
      case 5:
        if (!ranks_.empty()) {
          Rank& rank = AnyRank();
          if (rank.session != 0 && Pick(3) == 0) {
            core().Detached(rank.session, world_.now());
            Disconnect(rank);
            Commit();
          }
        }
        break;
      case 6:
      case 7:
      case 8:
        Boundary();
        break;
      default:
        if (!ranks_.empty()) Move(AnyRank());
        break;
    }
    StopWhatWasToStop();
  }
  void Move(Rank& rank) {
    if (rank.session == 0) return Connect(rank);
    // One order at a time, in any order between the ranks.
    if (Pick(2) == 0) {
      Receive(rank);
    } else {
      Send(rank);
    }
  }

  // A job that has failed more than once is started after a pause.
  void WaitASecond() {
    world_.seconds += 1;
    core().AgentHeard(agent_session_, world_.now());
    core().Tick(world_.now());
    Commit();
  }

  // Nothing goes wrong any more: everything that was asked must come to its end.
  void Peace() {
    for (Ask& ask : asks_) {
      if (ask.answers.empty() && bug_ != Bug::kLostRequestIds) {
        // A client repeats until it is answered.
        const cluster::CommandRequest request{.job_id = kJob,
                                              .request_id = ask.request_id,
                                              .fingerprint = ask.request_id,
                                              .command = ask.command};
        const auto number = ask.command.kind == Kind::kCancel
                                ? core().Cancel(request, world_.now())
                                : core().Command(request, world_.now());
        Commit();
        if (number.ok()) ask.answers.insert(*number);
      }
    }
    Store();
    for (int round = 0; round < 400 && wrong_.empty(); ++round) {
      for (int move = 0; move < 120 && !ranks_.empty(); ++move) Move(AnyRank());
      StopWhatWasToStop();
      if (!job().live) WaitASecond();
      if (job().commands.WillBePaused()) {
        (void)core().Command(
            {.job_id = kJob, .command = {.kind = Kind::kResume, .contents = "peace"}},
            world_.now());
        Commit();
      }
      Boundary();
      if (AllOver()) return;
    }
    Wrong("what was asked never came to its end");
  }
  bool AllOver() {
    if (!session_.has_value()) return false;
    for (const commands::Command& command : job().commands.commands()) {
      if (!command.outcome.has_value()) return false;
      // Rolled back over, and not reached again.
      if (command.applied_step >= static_cast<uint64_t>(session_->step)) return false;
    }
    for (const Rank& rank : ranks_) {
      if (!rank.unacked.empty() || !rank.coming.empty()) return false;
    }
    return true;
  }

  void Check() {
    const std::vector<Rank*> all = Together();
    for (const Rank* rank : all) {
      if (rank->history != all[0]->history) {
        return Wrong(absl::StrCat("ranks 0 and ", rank->id.rank, " have other histories"));
      }
    }
    std::map<int64_t, std::vector<int64_t>> steps;  // by command
    for (const auto& [step, number] : all[0]->history) steps[number].push_back(step);
    std::map<std::string, int> by_request;
    for (const commands::Command& command : job().commands.commands()) {
      const auto& done = steps[static_cast<int64_t>(command.number)];
      if (command.contents != "peace") ++by_request[command.contents];
      if (command.kind == Kind::kCancel) continue;
      if (command.outcome->code != absl::StatusCode::kOk) {
        if (!done.empty()) {
          Wrong(absl::StrCat("command ", command.number, " was taken back and done"));
        }
        continue;
      }
      const bool stays =
          command.kind == Kind::kSetLearningRate || command.kind == Kind::kSetTrainability;
      if (!stays) continue;  // done once and over, or in force again after a rollback
      if (done.size() != 1) {
        Wrong(absl::StrCat("command ", command.number, " took effect ", done.size(), " times"));
      } else if (static_cast<uint64_t>(done[0]) != command.applied_step) {
        Wrong(absl::StrCat("command ", command.number, " took effect after step ", done[0],
                           ", acknowledged is ", *command.applied_step));
      }
    }
    for (const auto& [request, count] : by_request) {
      if (count != 1) Wrong(absl::StrCat(request, " made ", count, " commands"));
    }
    for (const Ask& ask : asks_) {
      if (ask.answers.size() > 1) Wrong(absl::StrCat(ask.request_id, " had several answers"));
      for (const uint64_t number : ask.answers) {
        const commands::Command* command = job().commands.Find(number);
        const bool there = command != nullptr && (ask.command.kind == Kind::kCancel ||
                                                  command->contents == ask.request_id);
        if (!there) Wrong(absl::StrCat("the command of ", ask.request_id, " is lost"));
      }
    }
  }

  std::mt19937 random_;
  const Bug bug_;
  std::string* const story_;
  cluster::World world_;
  std::vector<store::Batch> unstored_;
  SessionId sessions_ = 0;
  SessionId agent_session_ = 0;
  std::vector<cluster::WorkerExit> exits_;
  std::vector<WorkerId> to_stop_;
  std::list<Rank> ranks_;
  std::optional<Session> session_;
  std::map<std::string, Saved> disk_;
  std::deque<Ask> asks_;
  std::string wrong_;
};

constexpr uint32_t kSchedules = 10000;

TEST(CommandSimulation, EachCommandTakesEffectOnceAtOneStepOnAllRanks) {
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    const std::string wrong = Simulation(seed, Bug::kNone).Run();
    if (wrong.empty()) continue;
    std::string story;
    Simulation(seed, Bug::kNone, &story).Run();
    FAIL() << "schedule " << seed << ": " << wrong << "\n" << story;
  }
}

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsFound) {
  uint32_t found = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) found += !Simulation(seed, GetParam()).Run().empty();
  EXPECT_GT(found, 0);
  RecordProperty("schedules_that_found_it_of_1000", static_cast<int>(found));
}

std::string NameOf(const testing::TestParamInfo<Bug>& info) {
  constexpr const char* kNames[] = {"None", "LatePersist", "MinOfSome", "LostRequestIds"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug,
                         testing::Values(Bug::kLatePersist, Bug::kMinOfSome, Bug::kLostRequestIds),
                         NameOf);

}  // namespace
}  // namespace muster
