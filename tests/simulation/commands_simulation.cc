#include "tests/simulation/commands_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "tests/simulation/command_from_delivery.h"

namespace muster::simulation {

using cluster::WorkerId;

std::string CommandsSimulation::Run() {
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

// ---- The coordinator.

void CommandsSimulation::Commit() {
  unstored_.push_back(core().TakeBatch());
  std::vector<cluster::Effect> effects = core().TakeEffects();
  if (bug_ != Bug::kLatePersist || Pick(3) != 0) Store();
  for (const cluster::Effect& effect : effects) Obey(effect);
}

void CommandsSimulation::Store() {
  for (store::Batch& batch : unstored_) ASSERT_TRUE(world_.store().Commit(batch).ok());
  unstored_.clear();
}

void CommandsSimulation::CrashCoordinator() {
  Tell("the coordinator crashes");
  unstored_.clear();
  world_.Restart();
  agent_session_ = 0;
  for (Rank& rank : ranks_) Disconnect(rank);
  ConnectAgent();
}

// ---- The agent, which is always there.

void CommandsSimulation::ConnectAgent() {
  agent_session_ = ++sessions_;
  cluster::AgentHello hello = cluster::Hello("n", 4);
  for (const Rank& rank : ranks_) hello.running.push_back({rank.id, 1});
  hello.exits = exits_;
  if (!core().AttachAgent(agent_session_, hello, world_.now()).ok()) {
    Wrong("the agent is refused");
  }
  Commit();
}

void CommandsSimulation::Obey(const cluster::Effect& effect) {
  std::visit(Overloaded{
                 [this](const cluster::SendToAgent& send) {
                   if (send.stream == agent_session_) Obey(send.order);
                 },
                 [this](const cluster::SendToWorker& send) {
                   for (Rank& rank : ranks_) {
                     if (rank.session == send.stream) rank.coming.push_back(send.order);
                   }
                 },
                 [this](const cluster::CloseStream& close) {
                   for (Rank& rank : ranks_) {
                     if (rank.session == close.stream) Disconnect(rank);
                   }
                 },
                 [this](const cluster::LogMessage& say) { Tell("musterd: ", say.text); },
                 // Nothing happens: no client follows the job, and there are no webhooks.
                 [](const OneOf<cluster::JobChanged, cluster::JobDeleted, cluster::StepsChanged,
                                cluster::LogsChanged, cluster::SendWebhook,
                                cluster::WithdrawWebhook> auto&) {},
             },
             effect);
}

void CommandsSimulation::Obey(const cluster::AgentOrder& order) {
  std::visit(
      Overloaded{
          [this](const cluster::StartWorker& start) {
            for (const Rank& rank : ranks_) {
              if (rank.id == start.worker) return;
            }
            ranks_.push_back({.id = start.worker});
          },
          [this](const cluster::StopWorker& stop) { to_stop_.push_back(stop.worker); },
          [this](const cluster::AckExit& ack) {
            std::erase_if(exits_, [&](const auto& exit) { return exit.worker == ack.worker; });
          },
          // Nothing happens: this agent has no leases, spools nothing, is not drained and has no
          // files.
          [](const OneOf<cluster::WelcomeAgent, cluster::AckSpool, cluster::DrainAgent,
                         cluster::SendDownload, cluster::RemoveDownload> auto&) {},
      },
      order);
}

void CommandsSimulation::StopWhatWasToStop() {
  while (!to_stop_.empty()) {
    const WorkerId id = to_stop_.back();
    to_stop_.pop_back();
    Die(id, 15);
  }
}

void CommandsSimulation::Die(WorkerId id, int signal) {
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
  core().Handle(agent_session_, exit, world_.now());
  Commit();
}

// ---- A worker's stream.

void CommandsSimulation::Disconnect(Rank& rank) {
  rank.session = 0;
  rank.coming.clear();
  rank.sent = 0;
}

void CommandsSimulation::Connect(Rank& rank) {
  rank.session = ++sessions_;
  if (!core()
           .AttachWorker(rank.session, {.worker = rank.id, .newest_command = rank.held.size()},
                         world_.now())
           .ok()) {
    rank.session = 0;
  }
  Commit();
}

void CommandsSimulation::Receive(Rank& rank) {
  if (rank.coming.empty()) return;
  const cluster::WorkerOrder order = rank.coming.front();
  if (Pick(10) != 0) rank.coming.pop_front();  // else it comes again
  std::visit(Overloaded{
                 [&](const cluster::WelcomeWorker& welcome) {
                   if (!rank.welcomed) {
                     rank.needed = welcome.newest_command;
                     if (!welcome.checkpoints.empty()) {
                       rank.restore_from = welcome.checkpoints[0].path;
                     }
                   }
                   rank.welcomed = true;
                   Acknowledged(rank, welcome.acked_report);
                   rank.sent = 0;
                 },
                 [&](const commands::Delivery& delivery) {
                   if (delivery.command.number != rank.held.size() + 1) return;
                   rank.held.push_back(CommandFromDelivery(delivery));
                   Tell("rank ", rank.id.rank, " of generation ", rank.id.generation, " holds ",
                        delivery.command.number, ", ", commands::Name(delivery.command.kind),
                        ", when ", static_cast<int>(delivery.when), ", at ",
                        rank.held.back().at_step());
                 },
                 [&](const cluster::AckReport& ack) { Acknowledged(rank, ack.sequence); },
                 // Nothing happens: only commands and reports are simulated.
                 [](const OneOf<jobs::Rendezvous, cluster::CheckpointRecorded,
                                cluster::ExportGranted, cluster::PreemptionNotice> auto&) {},
             },
             order);
}

void CommandsSimulation::Acknowledged(Rank& rank, uint64_t sequence) {
  while (!rank.unacked.empty() && rank.unacked.front().sequence <= sequence) {
    rank.unacked.pop_front();
    if (rank.sent > 0) --rank.sent;
  }
}

void CommandsSimulation::Send(Rank& rank) {
  if (!rank.welcomed || rank.session == 0 || rank.sent >= rank.unacked.size()) return;
  const cluster::Report report = rank.unacked[rank.sent++];
  if (!core().WorkerReported(rank.session, report, world_.now()).ok()) Disconnect(rank);
  Commit();
}

// ---- The client.

void CommandsSimulation::NewAsk() {
  if (asks_.size() >= 12) return;
  Ask ask{.request_id = absl::StrCat("request-", asks_.size())};
  constexpr v1::Operation::Kind kKinds[] = {v1::Operation::SET_LEARNING_RATE,
                                            v1::Operation::SET_TRAINABILITY,
                                            v1::Operation::SKIP_DATA,
                                            v1::Operation::SAVE_CHECKPOINT,
                                            v1::Operation::PAUSE,
                                            v1::Operation::RESUME,
                                            v1::Operation::CANCEL};
  ask.command.kind = kKinds[Pick(std::size(kKinds))];
  ask.command.contents = ask.request_id;
  if (Pick(4) == 0 && ask.command.kind != v1::Operation::RESUME &&
      ask.command.kind != v1::Operation::CANCEL) {
    ask.command.at_step = (session_.has_value() ? session_->step : 0) + Pick(8);
  }
  if (ask.command.kind == v1::Operation::CANCEL) {
    ask.command.target = 1 + Pick(static_cast<uint32_t>(job().commands.commands().size()) + 1);
  }
  asks_.push_back(ask);
}

void CommandsSimulation::Call(Ask& ask) {
  const cluster::CommandRequest request{.job_id = kJob,
                                        .request_id = ask.request_id,
                                        .fingerprint = ask.request_id,
                                        .command = ask.command};
  const auto number = ask.command.kind == v1::Operation::CANCEL
                          ? core().Cancel(request, world_.now())
                          : core().Command(request, world_.now());
  if (Pick(8) == 0) return CrashCoordinator();  // before it is durable
  Commit();
  if (number.ok() && Pick(3) != 0) ask.answers.insert(*number);  // else the answer is lost
}

// ---- What happens.

void CommandsSimulation::Event() {
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

void CommandsSimulation::Move(Rank& rank) {
  if (rank.session == 0) return Connect(rank);
  // Each event carries out one order. The ranks come in any sequence.
  if (Pick(2) == 0) {
    Receive(rank);
  } else {
    Send(rank);
  }
}

}  // namespace muster::simulation
