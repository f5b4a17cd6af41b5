#include "worker/agent/core/ended_workers.h"

#include <algorithm>
#include <utility>

namespace muster::agent {

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
