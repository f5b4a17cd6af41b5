#include "worker/agent/core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::agent {

Core::Core(const CoreOptions& options, absl::Time now)
    : options_(options), first_welcome_until_(now + options.lease) {}

Effects Core::Handle(const Event& event, absl::Time now) {
  Effects effects;
  if (quit_) return effects;
  // This comes before the event: an event that waited while this process was stopped does not
  // extend a lease that is over.
  if (now >= LeaseEnd()) EndLease(now, effects);
  std::visit([&](const auto& e) { On(e, now, effects); }, event);
  if (drain_.has_value() && !drain_->over && Waits() && now >= drain_->End()) {
    drain_->over = true;
    StopAll(drain_->cause, now + options_.stop_grace, effects);
  }
  if (shutdown_ && !Waits() && !quitting_.has_value()) quitting_ = absl::OkStatus();
  KillOverdue(now, effects);
  QuitWhenDone(now, effects);
  return effects;
}

absl::Time Core::NextDeadline() const {
  absl::Time next = std::min(LeaseEnd(), next_heartbeat_);
  if (!dropped_) next = std::min(next, lease_.SilentFrom());
  // While workers are left, their end is waited for, and not this time.
  if (!Waits()) next = std::min(next, report_until_);
  if (drain_.has_value() && !drain_->over && Waits()) next = std::min(next, drain_->End());
  for (const auto& [worker, running] : running_) {
    if (running.kill_at.has_value() && !running.killed && running.pid != 0) {
      next = std::min(next, *running.kill_at);
    }
    if (!running.quarantined) next = std::min(next, running.hangs_at);
  }
  return next;
}

void Core::On(const Opened&, absl::Time now, Effects& effects) {
  connected_ = true;
  opened_ = now;
  dropped_ = false;
  SendHello hello;
  for (const auto& [worker, running] : running_) {
    if (running.pid != 0) hello.running.push_back({worker, running.pid});
  }
  for (const auto& [worker, past] : past_) {
    if (past.spooled) {
      hello.running.push_back({worker, past.worker.pid});
    } else if (!past.acked) {
      hello.exits.push_back(past.worker);
    }
  }
  for (const auto& [worker, running] : running_) {
    if (running.quarantined) {
      hello.quarantined.push_back({running.slot, {worker, running.pid}, true});
    }
  }
  for (const auto& [worker, left] : left_hanging_) {
    hello.quarantined.push_back({left.slot, left.worker, true});
  }
  if (shutdown_) hello.draining = SendDraining{drain_->reason, options_.drain_timeout};
  effects.push_back(std::move(hello));
}

void Core::On(const Welcomed& welcome, absl::Time now, Effects& effects) {
  for (const auto& [worker, past] : past_) {
    if (past.spooled) effects.push_back(SendSpool{worker});
  }
  heartbeat_interval_ = welcome.heartbeat_interval;
  lease_.Welcomed(welcome.lease, opened_);
  next_heartbeat_ = now + welcome.heartbeat_interval;
  if (!shutdown_ || drain_->over) return;
  // Before this welcome the coordinator could not tell the workers to save and to end. A shutdown
  // that was asked for after the hello is not announced yet; a repeat changes nothing.
  drain_->until = std::max(drain_->until, now + options_.drain_timeout);
  effects.push_back(SendDraining{drain_->reason, options_.drain_timeout});
}

void Core::On(const Broken&, absl::Time, Effects&) {
  connected_ = false;
  lease_.Broken();
  heartbeat_interval_.reset();
  next_heartbeat_ = absl::InfiniteFuture();
}

void Core::On(const HeartbeatAcked& acked, absl::Time now, Effects&) {
  lease_.Acked(acked.sequence);
  if (!drain_.has_value()) return;
  // The activity is reported through a heartbeat of the worker and one of this agent, either of
  // which may be late.
  const absl::Duration reported_within = 3 * heartbeat_interval_.value_or(absl::ZeroDuration());
  drain_->SawActivity(acked.workers_activity, now + std::max(options_.standstill, reported_within));
}

void Core::On(const NobodyListens& refused, absl::Time, Effects&) { lease_.Refused(refused.begun); }

void Core::On(const Refused& refused, absl::Time now, Effects& effects) {
  On(Broken{}, now, effects);
  if (!quitting_.has_value()) quitting_ = shutdown_ ? absl::OkStatus() : refused.why;
  StopAll(Cause::kAgentStopped, now + options_.stop_grace, effects);
}

void Core::On(const StartRequested& request, absl::Time now, Effects& effects) {
  // The request waited in the stream while this process was stopped, and another process may have
  // the worker's rank by now. If not, the coordinator repeats the request after the next hello.
  if (now >= lease_.End()) return;
  if (const auto running = running_.find(request.worker); running != running_.end()) {
    if (running->second.pid != 0) {
      effects.push_back(SendStarted{{request.worker, running->second.pid}});
    }
    return;
  }
  if (const auto past = past_.find(request.worker); past != past_.end()) {
    if (!past->second.spooled) effects.push_back(SendExit{past->second.worker});
    return;
  }
  if (quitting_.has_value() || drain_.has_value()) {
    const bool drained = !quitting_.has_value() && !shutdown_;
    RecordEnd({.worker = request.worker,
               .ending = StartError{drained ? "the node is drained" : "the agent is stopping"},
               .cause = drained ? Cause::kDrained : Cause::kAgentStopped},
              effects);
    return;
  }
  if (!Offers(request.slot)) {
    const std::string what =
        request.slot < kFirstGpuSlot
            ? absl::StrCat("slot ", request.slot,
                           " was asked for, counted from 0; this agent offers ", options_.slots)
            : absl::StrCat(
                  "GPU ", request.slot - kFirstGpuSlot,
                  " was asked for; this agent offers these: ", absl::StrJoin(options_.gpus, ", "));
    RecordEnd({.worker = request.worker, .ending = StartError{what}, .cause = Cause::kNodeFault},
              effects);
    return;
  }
  running_.emplace(request.worker, Running{.continue_when_cut_off = request.continue_when_cut_off,
                                           .slot = request.slot});
  effects.push_back(Launch{request.worker, request.slot, request.continue_when_cut_off,
                           request.threads, request.secret});
}

void Core::On(const StopRequested& request, absl::Time now, Effects& effects) {
  if (const auto running = running_.find(request.worker); running != running_.end()) {
    Stop(request.worker, running->second, Cause::kStoppedAsTold, now + request.grace, effects);
    return;
  }
  if (const auto past = past_.find(request.worker); past != past_.end()) {
    if (!past->second.spooled) effects.push_back(SendExit{past->second.worker});
    return;
  }
  // This end is kept like any other, so that a StartWorker for it that comes late starts nothing.
  RecordEnd({.worker = request.worker,
             .ending = StartError{"this agent does not know the worker"},
             .cause = Cause::kStoppedAsTold},
            effects);
}

void Core::On(const ExitAcked& ack, absl::Time, Effects&) {
  const auto past = past_.find(ack.worker);
  if (past == past_.end() || past->second.acked) return;
  past->second.acked = true;
  past->second.worker.log_tail.clear();
  acked_.push_back(ack.worker);
  if (acked_.size() > options_.remembered_exits) {
    past_.erase(acked_.front());
    acked_.pop_front();
  }
}

void Core::On(const Launched& launched, absl::Time, Effects& effects) {
  const auto running = running_.find(launched.worker);
  if (running == running_.end()) return;
  running->second.pid = launched.pid;
  if (connected_) effects.push_back(SendStarted{{launched.worker, launched.pid}});
  if (running->second.kill_at.has_value()) effects.push_back(SendSignal{launched.worker, SIGTERM});
}

void Core::On(const LaunchFailed& failed, absl::Time, Effects& effects) {
  running_.erase(failed.worker);
  RecordEnd(
      {.worker = failed.worker, .ending = StartError{failed.reason}, .cause = Cause::kNodeFault},
      effects);
}

void Core::On(const Ended& ended, absl::Time, Effects& effects) {
  const auto running = running_.find(ended.worker);
  if (running == running_.end()) return;
  const int64_t pid = running->second.pid;
  Cause cause = running->second.cause;
  // A worker whose lease is over ends by itself. That is not a failure, even if StopWorker came
  // before its end was seen.
  const bool may_be_its_own = cause == Cause::kUnknown || cause == Cause::kStoppedAsTold;
  if (may_be_its_own && ended.ending == Ending(ExitCode{kLeaseOverExitCode})) {
    cause = Cause::kLeaseOver;
  }
  // Whatever stops this agent may also send the signal to its workers, as systemd does. If the
  // coordinator cannot write its store, a worker that has saved ends without its answer.
  const bool ended_for_drain = ended.ending == Ending(ExitSignal{SIGTERM}) ||
                               (ended.ending == Ending(ExitCode{0}) && !ended.spooled);
  if (cause == Cause::kUnknown && drain_.has_value() && ended_for_drain) cause = drain_->cause;
  if (running->second.quarantined) {
    EndQuarantine(running->second.slot, {ended.worker, pid}, effects);
  }
  running_.erase(running);
  RecordEnd({.worker = ended.worker,
             .pid = pid,
             .ending = ended.ending,
             .log_tail = ended.log_tail,
             .cause = cause},
            effects, ended.spooled);
}

void Core::On(const SpoolFound& found, absl::Time, Effects& effects) {
  // The worker did its work, which its reports say, or was killed with its agent.
  RecordEnd({.worker = found.worker, .ending = ExitSignal{SIGKILL}, .cause = Cause::kNodeFault},
            effects, true);
}

void Core::On(const SpoolTold& told, absl::Time, Effects& effects) {
  const auto past = past_.find(told.worker);
  if (past == past_.end() || !past->second.spooled) return;
  past->second.spooled = false;
  if (connected_) effects.push_back(SendExit{past->second.worker});
}

void Core::On(const HangingFound& found, absl::Time, Effects&) {
  left_hanging_[found.worker.worker] = found;
}

void Core::On(const HangingGone& gone, absl::Time, Effects& effects) {
  const auto left = left_hanging_.find(gone.worker);
  if (left == left_hanging_.end()) return;
  EndQuarantine(left->second.slot, left->second.worker, effects);
  left_hanging_.erase(left);
}

void Core::On(const DrainRequested& request, absl::Time now, Effects&) {
  if (shutdown_) return;
  if (!request.drain) {
    drain_.reset();
    return;
  }
  const absl::Duration deadline = request.deadline.value_or(options_.drain_timeout);
  if (!drain_.has_value()) {
    drain_ = Drain{.reason = request.reason,
                   .cause = Cause::kDrained,
                   .deadline = deadline,
                   .until = now + deadline};
  } else if (drain_->deadline != deadline) {
    // A new request. A request that is only repeated on a new stream has the same deadline.
    drain_->deadline = deadline;
    drain_->until = now + deadline;
  }
}

void Core::On(const WritesSeen& seen, absl::Time now, Effects&) {
  if (drain_.has_value()) drain_->SawWrites(seen.bytes, now + options_.standstill);
}

bool Core::Waits() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return !entry.second.quarantined; });
}

void Core::On(const ShutdownRequested&, absl::Time now, Effects& effects) {
  if (shutdown_ || quitting_.has_value()) {
    StopAll(Cause::kAgentStopped, now, effects);
    report_until_ = std::min(report_until_, now);
    return;
  }
  shutdown_ = true;
  // Only the coordinator can tell the jobs to move. If it is away, this agent waits for it, but no
  // longer than a lease.
  const bool attached = heartbeat_interval_.has_value();
  absl::Duration timeout = std::min(options_.drain_timeout, lease());
  if (attached) timeout = options_.drain_timeout;
  if (!drain_.has_value()) drain_.emplace();
  drain_->reason = "SIGTERM";
  drain_->cause = Cause::kAgentStopped;
  drain_->until = now + timeout;
  if (attached) effects.push_back(SendDraining{drain_->reason, options_.drain_timeout});
}

void Core::On(const Ticked&, absl::Time now, Effects& effects) {
  if (now >= next_heartbeat_) {
    effects.push_back(SendHeartbeat{lease_.Beat(now)});
    next_heartbeat_ = now + *heartbeat_interval_;
  }
  if (!dropped_ && now >= lease_.SilentFrom()) {
    dropped_ = true;
    effects.push_back(DropStream{});
  }
}

absl::Time Core::LeaseEnd() const {
  const bool holds = std::any_of(running_.begin(), running_.end(),
                                 [](const auto& entry) { return !entry.second.killed; });
  if (quitting_.has_value() && !holds) return absl::InfiniteFuture();
  absl::Time end = lease_.End();
  if (!lease_.terms().has_value()) {
    end = first_welcome_until_;
  } else if (options_.after_lease == AfterLease::kQuit && running_.empty() && AllAcked()) {
    end = std::min(end, lease_.WithoutRefusals());
  }
  return end == ended_lease_ ? absl::InfiniteFuture() : end;
}

void Core::EndLease(absl::Time now, Effects& effects) {
  ended_lease_ = LeaseEnd();
  const absl::Duration unanswered =
      lease_.terms().has_value() ? now - lease_.answered() : options_.lease;
  effects.push_back(LeaseOver{unanswered});
  bool some_continue = false;
  for (auto& [worker, running] : running_) {
    if (running.continue_when_cut_off) {
      some_continue = true;
    } else {
      running.cause = Cause::kLeaseOver;
      running.kill_at = now;  // KillOverdue follows
    }
  }
  if (options_.after_lease == AfterLease::kQuit && !some_continue && !quitting_.has_value()) {
    quitting_ = absl::UnavailableError(
        absl::StrCat("the coordinator was away for ", absl::FormatDuration(unanswered)));
  }
}

void Core::Stop(const WorkerId& worker, Running& running, Cause cause, absl::Time kill_at,
                Effects& effects) {
  const bool first = !running.kill_at.has_value();
  if (first) running.cause = cause;
  running.kill_at = first ? kill_at : std::min(kill_at, *running.kill_at);
  if (first && running.pid != 0) effects.push_back(SendSignal{worker, SIGTERM});
}

void Core::StopAll(Cause cause, absl::Time kill_at, Effects& effects) {
  for (auto& [worker, running] : running_) Stop(worker, running, cause, kill_at, effects);
}

void Core::KillOverdue(absl::Time now, Effects& effects) {
  for (auto& [worker, running] : running_) {
    if (!running.quarantined && now >= running.hangs_at) {
      running.quarantined = true;
      effects.push_back(Hangs{running.slot, {worker, running.pid}});
      if (connected_) {
        effects.push_back(SendQuarantine{running.slot, {worker, running.pid}, true});
      }
    }
    if (running.pid == 0 || running.killed ||
        now < running.kill_at.value_or(absl::InfiniteFuture())) {
      continue;
    }
    running.killed = true;
    running.hangs_at = now + options_.kill_timeout;
    effects.push_back(SendSignal{worker, SIGKILL});
  }
}

void Core::EndQuarantine(uint32_t slot, const RunningWorker& worker, Effects& effects) {
  effects.push_back(HangsNoMore{worker.worker});
  if (connected_) effects.push_back(SendQuarantine{slot, worker, false});
}

void Core::RecordEnd(EndedWorker worker, Effects& effects, bool spooled) {
  const WorkerId id = worker.worker;
  const bool attached = heartbeat_interval_.has_value();
  if (connected_ && !spooled) effects.push_back(SendExit{worker});
  if (spooled && attached) effects.push_back(SendSpool{id});
  past_.insert_or_assign(id, Past{.worker = std::move(worker), .spooled = spooled});
}

void Core::QuitWhenDone(absl::Time now, Effects& effects) {
  if (!quitting_.has_value() || Waits()) return;
  if (report_until_ == absl::InfiniteFuture()) report_until_ = now + options_.report_grace;
  // Without a coordinator there is nobody to report to. The coordinator learns that the workers
  // have ended from the end of this agent.
  if (connected_ && !AllAcked() && now < report_until_) return;
  quit_ = true;
  report_until_ = next_heartbeat_ = absl::InfiniteFuture();
  effects.push_back(Quit{*quitting_});
}

bool Core::AllAcked() const {
  return std::all_of(past_.begin(), past_.end(),
                     [](const auto& entry) { return entry.second.acked; });
}

}  // namespace muster::agent
