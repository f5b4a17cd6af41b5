#include "worker/control/outbox.h"

#include <algorithm>
#include <utility>

namespace muster::control {

void Outbox::Add(v1::WorkerReport report) {
  report.set_sequence(++last_);
  kept_.push_back(std::move(report));
}

std::optional<v1::WorkerReport> Outbox::Next() {
  if (!HasNext()) return std::nullopt;
  const uint64_t first = last_ + 1 - kept_.size();
  return kept_[next_++ - first];
}

void Outbox::Acknowledge(uint64_t sequence) {
  while (!kept_.empty() && kept_.front().sequence() <= sequence) kept_.pop_front();
  next_ = std::max(next_, std::min(sequence, last_) + 1);
}

void Outbox::Rewind(uint64_t acknowledged) {
  Acknowledge(acknowledged);
  next_ = last_ + 1 - kept_.size();
}

}  // namespace muster::control
