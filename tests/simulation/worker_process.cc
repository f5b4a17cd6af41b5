#include "tests/simulation/worker_process.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"
#include "tests/simulation/command_from_delivery.h"
#include "tests/simulation/start.h"
#include "tests/simulation/training_session.h"

namespace muster::simulation {
namespace {

agent::WorkerId ToAgent(const cluster::WorkerId& id) {
  return {id.job, id.generation, id.rank, id.incarnation};
}

// The same value as in ControlStreamOptions.
constexpr absl::Duration kConnectTimeout = absl::Seconds(30);

bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

WorkerProcess::WorkerProcess(Scene* scene, const cluster::WorkerId& id, const std::string& node,
                             int64_t pid, std::function<absl::Time()> agents_lease_end,
                             std::function<void(const agent::Ending&)> on_end)
    : scene_(*scene),
      id_(id),
      node_(node),
      pid_(pid),
      databases_(scene->databases),
      on_end_(std::move(on_end)),
      waits_from_(scene->timeline.now()),
      agents_lease_end_(std::move(agents_lease_end)) {
  scene_.checker.ProcessStarts(id_);
  After(scene_.timeline.Between(0.05, 0.5), [this] { Connect(); });
  AwaitWelcome();
}

void WorkerProcess::Run(std::function<void()> what) {
  if (!alive_) return;
  if (frozen_ || !waiting_.empty()) {
    waiting_.push_back(std::move(what));
  } else {
    what();
  }
}

void WorkerProcess::After(absl::Duration delay, std::function<void()> what) {
  scene_.timeline.After(delay, [this, what = std::move(what)] {
    if (alive_ && frozen_) {
      waiting_timers_.push_back(what);
    } else {
      Run(what);
    }
  });
}

// ---- Start and end.

void WorkerProcess::AwaitWelcome() {
  if (needed_commands_.has_value()) return;
  const absl::Time now = scene_.timeline.now();
  const absl::Time lease_end = agents_lease_end_();
  if (now >= lease_end) return Exit(agent::kLeaseOverExitCode);
  const absl::Duration left = std::min(waits_from_ + kConnectTimeout, lease_end) - now;
  if (left <= absl::ZeroDuration()) return Exit(3);
  After(left, [this] { AwaitWelcome(); });
}

void WorkerProcess::Die(const agent::Ending& ending, bool vanished) {
  if (!std::exchange(alive_, false)) return;
  scene_.timeline.Tell(node_, ": rank ", id_.rank, " of generation ", id_.generation, " of ",
                       id_.job, " ends");
  scene_.checker.ProcessEnded(id_);
  if (vanished && id_.rank == 0) {
    for (const cluster::Report& report : unacked_) {
      const auto* step = std::get_if<cluster::StepDone>(&report.what);
      if (step != nullptr) scene_.checker.MetricsAreLost(id_.job, step->step);
    }
  }
  if (stream_ != 0) {
    scene_.worker_streams.erase(stream_);
    scene_.network.CloseByClient(stream_, vanished);
    stream_ = 0;
  }
  if (joined_) scene_.sessions.at({id_.job, id_.generation, databases_})->Lost(this, vanished);
  on_end_(ending);
}

void WorkerProcess::Signal(int signal) {
  if (signal == SIGTERM && frozen_) {
    terminate_at_thaw_ = true;
  } else {
    Die(agent::ExitSignal{signal});
  }
}

void WorkerProcess::Freeze() { frozen_ = alive_; }

void WorkerProcess::Thaw() {
  if (!alive_ || !std::exchange(frozen_, false)) return;
  if (terminate_at_thaw_) return Die(agent::ExitSignal{SIGTERM});
  // The process's threads wake in any order.
  for (auto& what : std::exchange(waiting_timers_, {})) {
    After(scene_.timeline.Between(0, 0.005), std::move(what));
  }
  scene_.timeline.After(scene_.timeline.Between(0, 0.005), [this] {
    while (alive_ && !frozen_ && !waiting_.empty()) {
      const auto what = std::move(waiting_.front());
      waiting_.pop_front();
      what();
    }
  });
}

void WorkerProcess::Finish(int64_t step, bool preempted) {
  ending_ = true;
  Report(cluster::Finished{
      .step = static_cast<uint64_t>(step), .ended_early = {}, .preempted = preempted});
  Acknowledged();
}

void WorkerProcess::Fail(const jobs::ReportedFailure& failure) {
  if (!alive_ || std::exchange(ending_, true)) return;
  end_code_ = 1;
  Run([=, this] {
    Report(failure);
    After(absl::Seconds(2), [this] { Exit(1); });
    Acknowledged();
  });
}

void WorkerProcess::Acknowledged() {
  if (unacked_.empty() && std::exchange(spooled_through_, 0) > 0) {
    scene_.spools[node_].erase(ToAgent(id_));
  }
  if (!ending_) return;
  if (!attached_) Spool();
  const bool durable = unacked_.empty() || unacked_.back().sequence <= spooled_through_;
  if (durable) After(scene_.timeline.Between(0.001, 0.1), [this] { Exit(end_code_); });
}

// ---- Its stream.

void WorkerProcess::Connect() {
  if (stream_ != 0) return;
  opened_ = scene_.timeline.now();
  const auto stream = std::make_shared<StreamId>(0);
  stream_ = *stream = scene_.network.Open(node_, [this, stream](const StreamEnd& end) {
    Run([this, stream, end] { Ended(*stream, end); });
  });
  scene_.worker_streams[stream_] = this;
  const cluster::WorkerHello hello{.worker = id_,
                                   .pid = pid_,
                                   .newest_command = held_.size(),
                                   .acked_report = reports_ - unacked_.size()};
  scene_.network.SendUp(stream_, [this, stream = stream_, hello] {
    scene_.coordinator.Take(stream, [stream, hello](cluster::Cluster& cluster, absl::Time now) {
      return cluster.AttachWorker(stream, hello, now);
    });
  });
}

void WorkerProcess::CloseStream() {
  scene_.worker_streams.erase(stream_);
  stream_ = 0;
  sent_ = 0;
  attached_ = false;
  lease_.Broken();
  if (!std::exchange(probing_, true)) {
    Probe();
    After(scene_.timing.Heartbeat(), [this] { SpoolWhileAway(); });
  }
  Acknowledged();
  After(absl::Milliseconds(100), [this] { Connect(); });
}

void WorkerProcess::Ended(StreamId stream, const StreamEnd& end) {
  if (stream != stream_) return;
  if (IsRefusal(end.said)) {
    scene_.timeline.Tell(node_, ": rank ", id_.rank, " of generation ", id_.generation,
                         " is refused: ", end.said.message());
    return Exit(3);
  }
  if (RefusalReason(end.said) == kStoreTrouble) {
    lease_.Refused(opened_);
    waits_from_ = opened_;
  }
  CloseStream();
}

void WorkerProcess::SpoolWhileAway() {
  if (attached_) return;
  Spool();
  After(absl::Milliseconds(500), [this] { SpoolWhileAway(); });
}

void WorkerProcess::Spool() {
  if (!needed_commands_.has_value()) return;
  for (const cluster::Report& report : unacked_) {
    if (report.sequence <= spooled_through_) continue;
    scene_.spools[node_][ToAgent(id_)].push_back(report);
    spooled_through_ = report.sequence;
  }
}

bool WorkerProcess::Settled(bool spool) {
  if (!attached_ || spool) Spool();
  return unacked_.empty() || unacked_.back().sequence <= spooled_through_;
}

void WorkerProcess::Probe() {
  if (attached_) {
    probing_ = false;
    return;
  }
  const absl::Time begun = scene_.timeline.now();
  if (scene_.network.Refuses(node_)) {
    After(scene_.timeline.Between(0.0005, 0.01), [this, begun] {
      lease_.Refused(begun);
      waits_from_ = begun;
    });
  }
  After(scene_.timing.lease / 10, [this] { Probe(); });
}

void WorkerProcess::Order(StreamId stream, const cluster::WorkerOrder& order) {
  Run([this, stream, order] {
    if (stream != stream_) return;
    if (const auto* welcome = std::get_if<cluster::WelcomeWorker>(&order)) {
      Welcome(*welcome);
    } else if (std::holds_alternative<cluster::PreemptionNotice>(order)) {
      preempted_ = true;
    } else if (std::holds_alternative<jobs::Rendezvous>(order)) {
      rendezvous_ = true;
    } else if (const auto* delivery = std::get_if<commands::Delivery>(&order)) {
      if (delivery->command.number == held_.size() + 1) {
        held_.push_back(CommandFromDelivery(*delivery));
      }
    } else if (const auto* ack = std::get_if<cluster::AckReport>(&order)) {
      while (!unacked_.empty() && unacked_.front().sequence <= ack->sequence) {
        unacked_.pop_front();
        if (sent_ > 0) --sent_;
      }
      Acknowledged();
    } else if (const auto* recorded = std::get_if<cluster::CheckpointRecorded>(&order)) {
      for (const std::string& path : recorded->remove) {
        // The folder does not exist, or belongs to another generation.
        if (scene_.disk.gone || StaleEpoch(scene_.disk, id_).has_value()) continue;
        if (!scene_.disk.checkpoints.contains(path)) continue;
        scene_.timeline.Tell("rank ", id_.rank, " of generation ", id_.generation, " removes ",
                             path);
        scene_.checker.Removes(path);
        scene_.disk.checkpoints.erase(path);
      }
    }
    JoinWhenReady();
  });
}

void WorkerProcess::Welcome(const cluster::WelcomeWorker& welcome) {
  attached_ = true;
  scene_.timeline.Tell(node_, ": rank ", id_.rank, " of generation ", id_.generation,
                       " is attached");
  lease_.Welcomed(scene_.TermsOf(welcome.timing), opened_);
  while (!unacked_.empty() && unacked_.front().sequence <= welcome.acked_report) {
    unacked_.pop_front();
  }
  sent_ = 0;
  if (welcome.rendezvous.has_value()) rendezvous_ = true;
  if (!needed_commands_.has_value()) {
    needed_commands_ = welcome.newest_command;
    checkpoints_ = welcome.checkpoints;
    known_checkpoints_ = welcome.known_checkpoints;
    After(scene_.timing.Heartbeat(), [this] { Beat(); });
    WatchLease();
    if (id_.rank == 0) Report(jobs::Rendezvous{.host = node_, .port = 1});
  }
  Pump();
  Acknowledged();
}

void WorkerProcess::JoinWhenReady() {
  if (joined_ || !rendezvous_ || !needed_commands_.has_value() ||
      held_.size() < *needed_commands_) {
    return;
  }
  joined_ = true;
  auto& session = scene_.sessions[{id_.job, id_.generation, databases_}];
  if (session == nullptr) {
    session = std::make_unique<TrainingSession>(&scene_, id_.job, id_.generation);
  }
  session->Join(this);
}

void WorkerProcess::Pump() {
  if (!attached_) return;
  for (; sent_ < unacked_.size(); ++sent_) {
    const cluster::Report report = unacked_[sent_];
    scene_.network.SendUp(stream_, [this, stream = stream_, report] {
      scene_.coordinator.Take(stream, [stream, report](cluster::Cluster& cluster, absl::Time now) {
        return cluster.WorkerReported(stream, report, now);
      });
    });
  }
}

bool WorkerProcess::StillMine() {
  // A lease that is over stays over.
  lease_over_ = lease_over_ || scene_.timeline.now() >= lease_.End();
  return !lease_over_;
}

void WorkerProcess::WatchLease() {
  if (!StillMine()) {
    scene_.timeline.Tell(node_, ": rank ", id_.rank, " of generation ", id_.generation,
                         ": its lease is over");
    return Exit(agent::kLeaseOverExitCode);
  }
  const absl::Time now = scene_.timeline.now();
  if (stream_ != 0 && now >= lease_.SilentFrom()) {
    // The stream is open, but no message arrives. The next stream uses a new connection.
    scene_.timeline.Tell(node_, ": rank ", id_.rank, " of generation ", id_.generation,
                         " tries another stream");
    scene_.network.CloseByClient(stream_);
    CloseStream();
  }
  absl::Duration wait = std::min(absl::Seconds(1), lease_.End() - now);
  if (lease_.SilentFrom() > now) wait = std::min(wait, lease_.SilentFrom() - now);
  After(wait + scene_.timeline.Lateness(node_), [this] { WatchLease(); });
}

void WorkerProcess::Beat() {
  if (attached_) {
    const cluster::Heartbeat heartbeat{.step = step_,
                                       .progress = absl::StrCat("step ", step_),
                                       .stage = "fit",
                                       .activity = activity_};
    const uint64_t sequence = lease_.Beat(scene_.timeline.now());
    scene_.network.SendUp(stream_, [this, stream = stream_, heartbeat, sequence] {
      scene_.coordinator.Aside(
          stream, [this, stream, heartbeat, sequence](cluster::Cluster& cluster, absl::Time now) {
            if (cluster.WorkerBeat(stream, heartbeat, now)) {
              scene_.network.SendDown(stream, [this, stream, sequence] {
                Run([this, stream, sequence] {
                  if (stream == stream_) lease_.Acked(sequence);
                });
              });
            }
            return absl::OkStatus();
          });
    });
  }
  After(scene_.timing.Heartbeat(), [this] { Beat(); });
}

}  // namespace muster::simulation
