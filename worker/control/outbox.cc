#include "worker/control/outbox.h"

#include <algorithm>
#include <utility>

namespace muster::control {
namespace {

// What one report takes besides its contents.
constexpr size_t kOverhead = 64;

size_t Size(const v1::WorkerReport& report) { return report.ByteSizeLong() + kOverhead; }

}  // namespace

void Outbox::Add(v1::WorkerReport report) {
  report.set_sequence(++last_);
  bytes_ += Size(report);
  kept_.push_back(std::move(report));
}

std::optional<v1::WorkerReport> Outbox::Next() {
  if (!HasNext()) return std::nullopt;
  const uint64_t first = last_ + 1 - kept_.size();
  return kept_[next_++ - first];
}

void Outbox::Acknowledge(uint64_t sequence) {
  while (!kept_.empty() && kept_.front().sequence() <= sequence) {
    bytes_ -= Size(kept_.front());
    kept_.pop_front();
  }
  next_ = std::max(next_, std::min(sequence, last_) + 1);
}

std::vector<std::string> Outbox::After(uint64_t sequence) const {
  std::vector<std::string> reports;
  for (const v1::WorkerReport& report : kept_) {
    if (report.sequence() > sequence) reports.push_back(report.SerializeAsString());
  }
  return reports;
}

bool Outbox::Thin() {
  bool thinned = false;
  bool take = false;
  for (v1::WorkerReport& report : kept_) {
    if (!report.has_step()) continue;
    take = !take;
    if (!take) continue;
    bytes_ -= Size(report);
    report.clear_step();
    bytes_ += Size(report);
    thinned = true;
  }
  return thinned;
}

void Outbox::Rewind(uint64_t acknowledged) {
  Acknowledge(acknowledged);
  next_ = last_ + 1 - kept_.size();
}

}  // namespace muster::control
