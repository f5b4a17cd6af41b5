#include "tests/simulation/agent_process.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"

namespace muster::simulation {
namespace {

cluster::WorkerId ToCluster(const agent::WorkerId& id) {
  return {id.job, id.generation, id.rank, id.incarnation};
}
agent::WorkerId ToAgent(const cluster::WorkerId& id) {
  return {id.job, id.generation, id.rank, id.incarnation};
}

cluster::WorkerExit ToExit(const agent::EndedWorker& ended) {
  cluster::WorkerExit exit{.worker = ToCluster(ended.worker), .pid = ended.pid, .exit = {}};
  if (const auto* code = std::get_if<agent::ExitCode>(&ended.ending)) {
    exit.exit = {.cause = jobs::Exit::Cause::kCode, .number = code->code};
  } else if (const auto* signal = std::get_if<agent::ExitSignal>(&ended.ending)) {
    exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal->signal};
  } else {
    exit.exit = {.cause = jobs::Exit::Cause::kStartError,
                 .start_error = std::get<agent::StartError>(ended.ending).reason};
  }
  exit.exit.why = static_cast<jobs::Exit::Why>(ended.cause);
  return exit;
}

// The same function as in worker/agent/agent.cc.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

AgentProcess::AgentProcess(Scene* scene, const std::string& node, const agent::CoreOptions& options)
    : scene_(*scene), node_(node), options_(options) {}

void AgentProcess::Start() {
  if (running()) return;
  ++process_;
  frozen_ = welcomed_ = probing_ = false;
  incarnation_ = absl::StrCat(node_, "-agent-", process_);
  scene_.timeline.Tell(node_, ": ", incarnation_, " starts");
  core_ = std::make_unique<agent::Core>(options_, scene_.timeline.now());
  spooled_.clear();
  for (const auto& [worker, reports] : scene_.spools[node_]) Handle(agent::SpoolFound{worker});
  Connect();
  ScheduleTick();
}

void AgentProcess::Run(std::function<void()> what) {
  if (!running()) return;
  if (frozen_) {
    waiting_.push_back(std::move(what));
  } else {
    what();
  }
}

void AgentProcess::After(absl::Duration delay, std::function<void()> what) {
  scene_.timeline.After(delay, [this, process = process_, what = std::move(what)] {
    if (process == process_) Run(what);
  });
}

// ---- The loop.

void AgentProcess::Handle(const agent::Event& event) {
  if (!running()) return;
  for (const agent::Effect& effect : core_->Handle(event, scene_.timeline.now())) {
    std::visit(
        [this](const auto& e) {
          // Messages that this model does not know are ignored.
          if constexpr (requires { Do(e); }) Do(e);
        },
        effect);
    if (!running()) return;
  }
  ScheduleTick();
}

void AgentProcess::ScheduleTick() {
  const absl::Time due = core_->NextDeadline();
  if (due == tick_at_ || due == absl::InfiniteFuture()) return;
  tick_at_ = due;
  const absl::Time when = std::max(due, scene_.timeline.now()) + scene_.timeline.Lateness(node_);
  After(when - scene_.timeline.now(), [this, due] {
    if (tick_at_ != due) return;
    tick_at_ = absl::InfiniteFuture();
    Handle(agent::Ticked{});
  });
}

void AgentProcess::Do(const agent::Launch& launch) {
  scene_.timeline.Tell(node_, ": starts ", launch.worker.ToString(), " on slot ", launch.slot);
  const agent::WorkerId id = launch.worker;
  const int64_t pid = ++pids_;
  auto on_end = [this, id, process = process_](const agent::Ending& ending) {
    if (process != process_) return;
    workers_.erase(id);
    After(scene_.timeline.Between(0.001, 0.03), [this, id, ending] {
      Handle(agent::Ended{.worker = id,
                          .ending = ending,
                          .log_tail = {},
                          .spooled = scene_.spools[node_].contains(id)});
    });
  };
  // A stopped process is judged, too, by its state at that time.
  auto lease_end = [this, process = process_] {
    return process == process_ ? core_->lease_end() : absl::InfiniteFuture();
  };
  processes_.push_back(std::make_unique<WorkerProcess>(&scene_, ToCluster(id), node_, pid,
                                                       std::move(lease_end), std::move(on_end)));
  workers_[id] = processes_.back().get();
  Handle(agent::Launched{id, pid});
}

void AgentProcess::Do(const agent::SendSignal& effect) {
  const auto worker = workers_.find(effect.worker);
  if (worker != workers_.end()) worker->second->Signal(effect.signal);
}

void AgentProcess::Send(std::function<absl::Status(cluster::Cluster&, absl::Time)> apply,
                        bool aside) {
  if (stream_ == 0) return;
  scene_.network.SendUp(stream_, [this, stream = stream_, apply = std::move(apply), aside] {
    aside ? scene_.coordinator.Aside(stream, apply) : scene_.coordinator.Take(stream, apply);
  });
}

void AgentProcess::Do(const agent::SendHello& effect) {
  cluster::AgentHello hello{
      .node = node_, .incarnation = incarnation_, .host = node_, .slots = options_.slots};
  hello.agent_id = node_;
  if (effect.draining.has_value()) hello.draining = effect.draining->reason;
  for (const agent::RunningWorker& worker : effect.running) {
    hello.running.push_back({ToCluster(worker.worker), worker.pid});
  }
  for (const agent::EndedWorker& ended : effect.exits) hello.exits.push_back(ToExit(ended));
  Send([stream = stream_, hello](cluster::Cluster& cluster, absl::Time now) {
    return cluster.AttachAgent(stream, hello, now);
  });
}

void AgentProcess::Do(const agent::SendHeartbeat& effect) {
  Send(
      [this, stream = stream_, process = process_, sequence = effect.sequence](
          cluster::Cluster& cluster, absl::Time now) {
        if (cluster.AgentHeard(stream, now)) {
          const uint64_t activity = cluster.overview().DrainActivity(stream);
          scene_.network.SendDown(stream, [this, stream, process, sequence, activity] {
            if (process != process_) return;
            Run([this, stream, sequence, activity] {
              if (stream == stream_) Handle(agent::HeartbeatAcked{sequence, activity});
            });
          });
        }
        return absl::OkStatus();
      },
      /*aside=*/true);
}

void AgentProcess::Do(const agent::SendStarted& effect) {
  const cluster::RunningWorker worker{ToCluster(effect.worker.worker), effect.worker.pid};
  Send([stream = stream_, worker](cluster::Cluster& cluster, absl::Time now) {
    cluster.Handle(stream, worker, now);
    return absl::OkStatus();
  });
}

void AgentProcess::Do(const agent::SendExit& effect) {
  Send([stream = stream_, exit = ToExit(effect.worker)](cluster::Cluster& cluster, absl::Time now) {
    cluster.Handle(stream, exit, now);
    return absl::OkStatus();
  });
}

void AgentProcess::Do(const agent::SendDraining& effect) {
  Send([stream = stream_, reason = effect.reason](cluster::Cluster& cluster, absl::Time now) {
    cluster.Handle(stream, cluster::AgentStops{reason}, now);
    return absl::OkStatus();
  });
}

void AgentProcess::Do(const agent::SendSpool& effect) {
  spooled_[effect.worker] = 0;
  TellMore(effect.worker);
}

void AgentProcess::TellMore(const agent::WorkerId& worker) {
  auto& spools = scene_.spools[node_];
  size_t& told = spooled_.at(worker);
  std::vector<cluster::Report> part;
  // One message at a time.
  for (const auto& all = spools[worker]; told < all.size() && part.size() < 4; ++told) {
    part.push_back(all[told]);
  }
  if (part.empty()) {
    spools.erase(worker);
    spooled_.erase(worker);
    return Handle(agent::SpoolTold{worker});
  }
  Send([stream = stream_, id = ToCluster(worker), part](cluster::Cluster& cluster, absl::Time now) {
    cluster.Handle(stream, cluster::SpooledReports{id, part}, now);
    return absl::OkStatus();
  });
}

void AgentProcess::Do(const agent::DropStream&) {
  if (stream_ == 0) return;
  scene_.network.CloseByClient(stream_);
  Ended(stream_, {.silent = true});
}

void AgentProcess::Do(const agent::LeaseOver&) {
  scene_.timeline.Tell(node_, ": the agent's lease is over");
}

void AgentProcess::Do(const agent::Quit& effect) {
  scene_.timeline.Tell(
      node_, ": the agent ends: ", effect.why.ToString(absl::StatusToStringMode::kWithNoExtraData));
  Die(/*vanished=*/false);
}

// ---- The stream.

void AgentProcess::Connect() {
  welcomed_ = false;
  const auto stream = std::make_shared<StreamId>(0);
  stream_ = *stream =
      scene_.network.Open(node_, [this, stream, process = process_](const StreamEnd& end) {
        if (process == process_) Run([this, stream, end] { Ended(*stream, end); });
      });
  scene_.agent_streams[stream_] = this;
  opened_ = scene_.timeline.now();
  Handle(agent::Opened{});
}

void AgentProcess::Ended(StreamId stream, const StreamEnd& end) {
  if (stream != stream_) return;
  scene_.agent_streams.erase(stream_);
  stream_ = 0;
  welcomed_ = false;
  if (IsFinal(end.said)) return Handle(agent::Refused{end.said});
  if (!std::exchange(probing_, true)) Probe();
  After(scene_.timeline.Between(0.1, 1), [this] { Connect(); });
  Handle(agent::Broken{});
  if (RefusalReason(end.said) == kStoreTrouble) Handle(agent::NobodyListens{opened_});
}

void AgentProcess::Probe() {
  if (welcomed_) {
    probing_ = false;
    return;
  }
  const absl::Time begun = scene_.timeline.now();
  if (scene_.network.Refuses(node_)) {
    After(scene_.timeline.Between(0.0005, 0.01),
          [this, begun] { Handle(agent::NobodyListens{begun}); });
  }
  After(scene_.timing.lease / 10, [this] { Probe(); });
}

void AgentProcess::Order(StreamId stream, const cluster::AgentOrder& order) {
  Run([this, stream, order] {
    if (stream != stream_) return;
    if (const auto* welcome = std::get_if<cluster::WelcomeAgent>(&order)) {
      welcomed_ = true;
      Handle(agent::Welcomed{.heartbeat_interval = welcome->timing.Heartbeat(),
                             .lease = scene_.TermsOf(welcome->timing)});
    } else if (const auto* start = std::get_if<cluster::StartWorker>(&order)) {
      Handle(agent::StartRequested{ToAgent(start->worker), start->slot});
    } else if (const auto* stop = std::get_if<cluster::StopWorker>(&order)) {
      Handle(agent::StopRequested{ToAgent(stop->worker), stop->grace});
    } else if (const auto* drain = std::get_if<cluster::DrainAgent>(&order)) {
      Handle(agent::DrainRequested{drain->drain, drain->reason, drain->deadline});
    } else if (const auto* ack = std::get_if<cluster::AckSpool>(&order)) {
      if (spooled_.contains(ToAgent(ack->worker))) TellMore(ToAgent(ack->worker));
    } else if (const auto* ack = std::get_if<cluster::AckExit>(&order)) {
      Handle(agent::ExitAcked{ToAgent(ack->worker)});
    }
  });
}

// ---- Faults.

std::vector<WorkerProcess*> AgentProcess::Workers() const {
  std::vector<WorkerProcess*> workers;
  for (const auto& [id, worker] : workers_) workers.push_back(worker);
  return workers;
}

void AgentProcess::Die(bool vanished) {
  if (!running()) return;
  ++process_;
  core_.reset();
  frozen_ = false;
  waiting_.clear();
  tick_at_ = absl::InfiniteFuture();
  for (WorkerProcess* worker : Workers()) worker->Die(agent::ExitSignal{SIGKILL}, vanished);
  workers_.clear();
  if (stream_ == 0) return;
  scene_.agent_streams.erase(stream_);
  scene_.network.CloseByClient(std::exchange(stream_, 0), vanished);
}

void AgentProcess::Kill() {
  scene_.timeline.Tell(node_, ": the agent is killed");
  Die(/*vanished=*/false);
}

void AgentProcess::Vanish() {
  scene_.timeline.Tell(node_, ": the machine is gone");
  Die(/*vanished=*/true);
}

void AgentProcess::Terminate() {
  scene_.timeline.Tell(node_, ": the agent gets SIGTERM");
  Run([this] { Handle(agent::ShutdownRequested{}); });
}

void AgentProcess::Freeze() {
  if (!running()) return;
  scene_.timeline.Tell(node_, ": the agent is stopped");
  frozen_ = true;
}

void AgentProcess::Thaw() {
  if (!running() || !std::exchange(frozen_, false)) return;
  scene_.timeline.Tell(node_, ": the agent goes on");
  for (auto& what : std::exchange(waiting_, {})) After(absl::ZeroDuration(), std::move(what));
}

void AgentProcess::FreezeMachine() {
  Freeze();
  for (WorkerProcess* worker : Workers()) {
    scene_.checker.ExcuseUntil(worker->id(), absl::InfiniteFuture());
    worker->Freeze();
  }
}

void AgentProcess::ThawMachine() {
  Thaw();
  for (WorkerProcess* worker : Workers()) {
    worker->Thaw();
    scene_.checker.ExcuseUntil(worker->id(), scene_.timeline.now() + absl::Seconds(1));
  }
}

}  // namespace muster::simulation
