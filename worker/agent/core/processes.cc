#include "worker/agent/core/processes.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace muster::agent {

void Processes::Start(const StartRequested& request, Effects& effects) {
  running_.emplace(request.worker, Process{.continue_when_cut_off = request.continue_when_cut_off,
                                           .slot = request.slot});
  effects.push_back(request);
}

void Processes::On(const Launched& launched, const Attachment& attachment, Effects& effects) {
  const auto running = running_.find(launched.worker);
  if (running == running_.end()) return;
  running->second.pid = launched.pid;
  if (attachment.connected()) effects.push_back(SendStarted{{launched.worker, launched.pid}});
  if (running->second.kill_at.has_value()) effects.push_back(SendSignal{launched.worker, SIGTERM});
}

std::optional<Process> Processes::On(const Ended& ended, const Attachment& attachment,
                                     Effects& effects) {
  const auto running = running_.find(ended.worker);
  if (running == running_.end()) return std::nullopt;
  const Process process = running->second;
  if (process.quarantined) {
    EndQuarantine(process.slot, {ended.worker, process.pid}, attachment, effects);
  }
  running_.erase(running);
  return process;
}

void Processes::On(const HangingGone& gone, const Attachment& attachment, Effects& effects) {
  const auto left = left_hanging_.find(gone.worker);
  if (left == left_hanging_.end()) return;
  EndQuarantine(left->second.slot, left->second.worker, attachment, effects);
  left_hanging_.erase(left);
}

bool Processes::Stop(const WorkerId& worker, Cause cause, absl::Time kill_at, Effects& effects) {
  const auto running = running_.find(worker);
  if (running == running_.end()) return false;
  Stop(worker, running->second, cause, kill_at, effects);
  return true;
}

void Processes::Stop(const WorkerId& worker, Process& process, Cause cause, absl::Time kill_at,
                     Effects& effects) {
  const bool first = !process.kill_at.has_value();
  if (first) process.cause = cause;
  process.kill_at = first ? kill_at : std::min(kill_at, *process.kill_at);
  if (first && process.pid != 0) effects.push_back(SendSignal{worker, SIGTERM});
}

void Processes::StopAll(Cause cause, absl::Time kill_at, Effects& effects) {
  for (auto& [worker, process] : running_) Stop(worker, process, cause, kill_at, effects);
}

bool Processes::EndLease(absl::Time now) {
  bool some_continue = false;
  for (auto& [worker, process] : running_) {
    if (process.continue_when_cut_off) {
      some_continue = true;
    } else {
      process.cause = Cause::kLeaseOver;
      process.kill_at = now;
    }
  }
  return some_continue;
}

void Processes::KillOverdue(absl::Time now, const Attachment& attachment, Effects& effects) {
  for (auto& [worker, process] : running_) {
    if (!process.quarantined && now >= process.hangs_at) {
      process.quarantined = true;
      effects.push_back(Hangs{process.slot, {worker, process.pid}});
      if (attachment.connected()) {
        effects.push_back(SendQuarantine{process.slot, {worker, process.pid}, true});
      }
    }
    if (process.pid == 0 || process.killed ||
        now < process.kill_at.value_or(absl::InfiniteFuture())) {
      continue;
    }
    process.killed = true;
    process.hangs_at = now + kill_timeout_;
    effects.push_back(SendSignal{worker, SIGKILL});
  }
}

void Processes::EndQuarantine(uint32_t slot, const RunningWorker& worker,
                              const Attachment& attachment, Effects& effects) {
  effects.push_back(HangsNoMore{worker.worker});
  if (attachment.connected()) effects.push_back(SendQuarantine{slot, worker, false});
}

const Process* Processes::Find(const WorkerId& worker) const {
  const auto running = running_.find(worker);
  return running == running_.end() ? nullptr : &running->second;
}

bool Processes::Waits() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return !entry.second.quarantined; });
}

bool Processes::HoldLease() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return !entry.second.killed; });
}

void Processes::AddTo(SendHello* hello) const {
  for (const auto& [worker, process] : running_) {
    if (process.pid != 0) hello->running.push_back({worker, process.pid});
    if (process.quarantined) {
      hello->quarantined.push_back({process.slot, {worker, process.pid}, true});
    }
  }
  for (const auto& [worker, left] : left_hanging_) {
    hello->quarantined.push_back({left.slot, left.worker, true});
  }
}

absl::Time Processes::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [worker, process] : running_) {
    if (process.kill_at.has_value() && !process.killed && process.pid != 0) {
      next = std::min(next, *process.kill_at);
    }
    if (!process.quarantined) next = std::min(next, process.hangs_at);
  }
  return next;
}

void EndedWorkers::Add(EndedWorker worker, bool spooled, const Attachment& attachment,
                       Effects& effects) {
  const WorkerId id = worker.worker;
  if (attachment.connected() && !spooled) effects.push_back(SendExit{worker});
  if (attachment.attached() && spooled) effects.push_back(SendSpool{id});
  past_.insert_or_assign(id, Past{.worker = std::move(worker), .spooled = spooled});
}

void EndedWorkers::On(const ExitAcked& ack) {
  const auto past = past_.find(ack.worker);
  if (past == past_.end() || past->second.acked) return;
  past->second.acked = true;
  past->second.worker.log_tail.clear();
  acked_.push_back(ack.worker);
  if (acked_.size() > remembered_) {
    past_.erase(acked_.front());
    acked_.pop_front();
  }
}

void EndedWorkers::On(const SpoolTold& told, const Attachment& attachment, Effects& effects) {
  const auto past = past_.find(told.worker);
  if (past == past_.end() || !past->second.spooled) return;
  past->second.spooled = false;
  if (attachment.connected()) effects.push_back(SendExit{past->second.worker});
}

void EndedWorkers::On(const Welcomed&, Effects& effects) const {
  for (const auto& [worker, past] : past_) {
    if (past.spooled) effects.push_back(SendSpool{worker});
  }
}

bool EndedWorkers::TellAgain(const WorkerId& worker, Effects& effects) const {
  const auto past = past_.find(worker);
  if (past == past_.end()) return false;
  if (!past->second.spooled) effects.push_back(SendExit{past->second.worker});
  return true;
}

void EndedWorkers::AddTo(SendHello* hello) const {
  for (const auto& [worker, past] : past_) {
    if (past.spooled) {
      hello->running.push_back({worker, past.worker.pid});
    } else if (!past.acked) {
      hello->exits.push_back(past.worker);
    }
  }
}

bool EndedWorkers::AllAcked() const {
  return std::all_of(past_.begin(), past_.end(),
                     [](const auto& entry) { return entry.second.acked; });
}

}  // namespace muster::agent
