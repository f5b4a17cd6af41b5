#include "worker/agent/core/core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/overloaded/overloaded.h"
#include "common/slots/slots.h"

namespace muster::agent {

Core::Core(const CoreOptions& options, absl::Time now)
    : options_(options),
      processes_(options.kill_timeout),
      ended_(options.remembered_exits),
      first_welcome_until_(now + options.lease) {}

Effects Core::Handle(const Event& event, absl::Time now) {
  Effects effects;
  if (quit_) return effects;
  // The end of the lease comes before the event. So an event that waited while this process was
  // stopped does not extend a lease that is over.
  if (now >= LeaseEnd()) EndLease(now, effects);
  std::visit(
      Overloaded{
          [&](const Opened& e) { On(e, now, effects); },
          [&](const Welcomed& e) { On(e, now, effects); },
          [&](const HeartbeatAcked& e) { On(e, now); },
          [&](const NobodyListens& e) { attachment_.On(e); },
          [&](const Broken& e) { attachment_.On(e); },
          [&](const Refused& e) { On(e, now, effects); },
          [&](const StartRequested& e) { On(e, now, effects); },
          [&](const StopRequested& e) { On(e, now, effects); },
          [&](const ExitAcked& e) { ended_.On(e); },
          [&](const DrainRequested& e) { On(e, now); },
          [&](const WritesSeen& e) {
            if (drain_.has_value()) drain_->SawWrites(e.bytes, now + options_.standstill);
          },
          [&](const Launched& e) { processes_.On(e, attachment_, effects); },
          [&](const LaunchFailed& e) {
            processes_.On(e);
            RecordEnd({.worker = e.worker,
                       .ending = StartError{e.reason},
                       .cause = Cause::kNodeFault},
                      effects);
          },
          [&](const Ended& e) { On(e, effects); },
          [&](const SpoolFound& e) {
            // The worker did its work, as its reports say, or was killed with its agent.
            RecordEnd(
                {.worker = e.worker, .ending = ExitSignal{SIGKILL}, .cause = Cause::kNodeFault},
                effects, true);
          },
          [&](const SpoolTold& e) { ended_.On(e, attachment_, effects); },
          [&](const HangingFound& e) { processes_.On(e); },
          [&](const HangingGone& e) { processes_.On(e, attachment_, effects); },
          [&](const ShutdownRequested& e) { On(e, now, effects); },
          [&](const Ticked& e) { attachment_.On(e, now, effects); },
      },
      event);
  if (draining() && !drain_->over && now >= drain_->End()) {
    drain_->over = true;
    processes_.StopAll(drain_->cause, now + options_.stop_grace, effects);
  }
  if (shutdown_ && !processes_.Waits() && !quitting_.has_value()) quitting_ = absl::OkStatus();
  processes_.KillOverdue(now, attachment_, effects);
  QuitWhenDone(now, effects);
  return effects;
}

absl::Time Core::NextDeadline() const {
  absl::Time next =
      std::min({LeaseEnd(), attachment_.NextDeadline(), processes_.NextDeadline()});
  // The agent waits for the end of workers that are left, not for this time.
  if (!processes_.Waits()) next = std::min(next, report_until_);
  if (draining() && !drain_->over) next = std::min(next, drain_->End());
  return next;
}

void Core::On(const Opened& opened, absl::Time now, Effects& effects) {
  attachment_.On(opened, now);
  SendHello hello;
  processes_.AddTo(&hello);
  ended_.AddTo(&hello);
  if (shutdown_) hello.draining = SendDraining{drain_->reason, options_.drain_timeout};
  effects.push_back(std::move(hello));
}

void Core::On(const Welcomed& welcome, absl::Time now, Effects& effects) {
  ended_.On(welcome, effects);
  attachment_.On(welcome, now);
  if (!shutdown_ || drain_->over) return;
  // The workers get the full time from this welcome, because the coordinator could not tell them
  // earlier to save and to end. A hello sent before the shutdown does not announce the shutdown; a
  // repeated announcement changes nothing.
  drain_->until = std::max(drain_->until, now + options_.drain_timeout);
  effects.push_back(SendDraining{drain_->reason, options_.drain_timeout});
}

void Core::On(const HeartbeatAcked& acked, absl::Time now) {
  attachment_.On(acked);
  if (!drain_.has_value()) return;
  // The activity is reported through a heartbeat of the worker and a heartbeat of this agent.
  // Either may be late.
  const absl::Duration reported_within = 3 * attachment_.heartbeat_interval();
  drain_->SawActivity(acked.workers_activity, now + std::max(options_.standstill, reported_within));
}

void Core::On(const Refused& refused, absl::Time now, Effects& effects) {
  attachment_.On(Broken{});
  if (!quitting_.has_value()) quitting_ = shutdown_ ? absl::OkStatus() : refused.why;
  processes_.StopAll(Cause::kAgentStopped, now + options_.stop_grace, effects);
}

void Core::On(const StartRequested& request, absl::Time now, Effects& effects) {
  // The request waited in the stream while this process was stopped, and another process may have
  // the worker's rank by now. Otherwise the coordinator repeats the request after the next hello.
  if (now >= lease_end()) return;
  if (const Process* running = processes_.Find(request.worker); running != nullptr) {
    if (running->pid != 0) effects.push_back(SendStarted{{request.worker, running->pid}});
    return;
  }
  if (ended_.TellAgain(request.worker, effects)) return;
  if (auto refusal = Refusal(request)) return RecordEnd(*std::move(refusal), effects);
  processes_.Start(request, effects);
}

std::optional<EndedWorker> Core::Refusal(const StartRequested& request) const {
  if (quitting_.has_value() || drain_.has_value()) {
    const bool drained = !quitting_.has_value() && !shutdown_;
    return EndedWorker{
        .worker = request.worker,
        .ending = StartError{drained ? "the node is drained" : "the agent is stopping"},
        .cause = drained ? Cause::kDrained : Cause::kAgentStopped};
  }
  if (Offers(request.slot)) return std::nullopt;
  const std::string what =
      request.slot < kFirstGpuSlot
          ? absl::StrCat("slot ", request.slot,
                         " was asked for, counted from 0; this agent offers ", options_.slots)
          : absl::StrCat("GPU ", request.slot - kFirstGpuSlot,
                         " was asked for; this agent offers these: ",
                         absl::StrJoin(options_.gpus, ", "));
  return EndedWorker{
      .worker = request.worker, .ending = StartError{what}, .cause = Cause::kNodeFault};
}

bool Core::Offers(uint32_t slot) const {
  if (slot < kFirstGpuSlot) return slot < options_.slots;
  return std::find(options_.gpus.begin(), options_.gpus.end(), slot - kFirstGpuSlot) !=
         options_.gpus.end();
}

void Core::On(const StopRequested& request, absl::Time now, Effects& effects) {
  const absl::Time kill_at = now + request.grace;
  if (processes_.Stop(request.worker, Cause::kStoppedAsTold, kill_at, effects)) return;
  if (ended_.TellAgain(request.worker, effects)) return;
  // The end is kept like any other, so that a late StartWorker for this worker starts nothing.
  RecordEnd({.worker = request.worker,
             .ending = StartError{"this agent does not know the worker"},
             .cause = Cause::kStoppedAsTold},
            effects);
}

void Core::On(const Ended& ended, Effects& effects) {
  const std::optional<Process> process = processes_.On(ended, attachment_, effects);
  if (!process.has_value()) return;
  Cause cause = process->cause;
  // A worker whose lease is over ends by itself. Its end is no failure, even if StopWorker came
  // before the agent saw the end.
  const bool may_be_its_own = cause == Cause::kUnknown || cause == Cause::kStoppedAsTold;
  if (may_be_its_own && ended.ending == Ending(ExitCode{kLeaseOverExitCode})) {
    cause = Cause::kLeaseOver;
  }
  // The program that stops this agent may also send the signal to its workers, as systemd does. If
  // the coordinator cannot write its store, a worker that has saved ends without an answer.
  const bool ended_for_drain = ended.ending == Ending(ExitSignal{SIGTERM}) ||
                               (ended.ending == Ending(ExitCode{0}) && !ended.spooled);
  if (cause == Cause::kUnknown && drain_.has_value() && ended_for_drain) cause = drain_->cause;
  RecordEnd({.worker = ended.worker,
             .pid = process->pid,
             .ending = ended.ending,
             .log_tail = ended.log_tail,
             .cause = cause},
            effects, ended.spooled);
}

void Core::On(const DrainRequested& request, absl::Time now) {
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
    // The request is new: a request that is repeated on a new stream has the same deadline.
    drain_->deadline = deadline;
    drain_->until = now + deadline;
  }
}

void Core::On(const ShutdownRequested&, absl::Time now, Effects& effects) {
  if (shutdown_ || quitting_.has_value()) {
    processes_.StopAll(Cause::kAgentStopped, now, effects);
    report_until_ = std::min(report_until_, now);
    return;
  }
  shutdown_ = true;
  // Only the coordinator can tell the jobs to move. If the coordinator is away, this agent waits
  // for its return, but no longer than a lease.
  absl::Duration timeout = std::min(options_.drain_timeout, lease());
  if (attachment_.attached()) timeout = options_.drain_timeout;
  if (!drain_.has_value()) drain_.emplace();
  drain_->reason = "SIGTERM";
  drain_->cause = Cause::kAgentStopped;
  drain_->until = now + timeout;
  if (attachment_.attached()) {
    effects.push_back(SendDraining{drain_->reason, options_.drain_timeout});
  }
}

absl::Time Core::LeaseEnd() const {
  if (quitting_.has_value() && !processes_.HoldLease()) return absl::InfiniteFuture();
  const Lease& lease = attachment_.lease();
  absl::Time end = lease.End();
  if (!lease.terms().has_value()) {
    end = first_welcome_until_;
  } else if (options_.after_lease == AfterLease::kQuit && processes_.empty() &&
             ended_.AllAcked()) {
    end = std::min(end, lease.WithoutRefusals());
  }
  return end == ended_lease_ ? absl::InfiniteFuture() : end;
}

void Core::EndLease(absl::Time now, Effects& effects) {
  ended_lease_ = LeaseEnd();
  const Lease& lease = attachment_.lease();
  const absl::Duration unanswered =
      lease.terms().has_value() ? now - lease.answered() : options_.lease;
  effects.push_back(LeaseOver{unanswered});
  const bool some_continue = processes_.EndLease(now);
  if (options_.after_lease == AfterLease::kQuit && !some_continue && !quitting_.has_value()) {
    quitting_ = absl::UnavailableError(
        absl::StrCat("the coordinator was away for ", absl::FormatDuration(unanswered)));
  }
}

void Core::QuitWhenDone(absl::Time now, Effects& effects) {
  if (!quitting_.has_value() || processes_.Waits()) return;
  if (report_until_ == absl::InfiniteFuture()) report_until_ = now + options_.report_grace;
  // The exits cannot be reported without a connection. The end of this agent then tells the
  // coordinator that the workers have ended.
  if (attachment_.connected() && !ended_.AllAcked() && now < report_until_) return;
  quit_ = true;
  report_until_ = absl::InfiniteFuture();
  attachment_.EndHeartbeats();
  effects.push_back(Quit{*quitting_});
}

}  // namespace muster::agent
