#include "coordinator/cluster/state/restored.h"

namespace muster::cluster {

void Restored::HadJob(const std::string& job, std::optional<uint64_t> newest_command) {
  if (newest_command.has_value()) {
    live_[job].newest_command = *newest_command;
  } else {
    idle_.insert(job);
  }
}

void Restored::Tick(absl::Time now) {
  if (now < until_) return;
  awaited_.clear();
  behind_.clear();
}

void Restored::KnowsMore(const std::string& job) {
  if (Had(job)) behind_.insert(job);
}

void Restored::LaterProcess(const std::string& job, const std::string& incarnation,
                            const std::string& node) {
  later_[{job, incarnation}] = node;
}

void Restored::ProcessEnded(const std::string& job, const std::string& incarnation,
                            const std::string& node) {
  const auto process = later_.find({job, incarnation});
  if (process != later_.end() && process->second == node) later_.erase(process);
}

void Restored::ProcessesEnded(const std::string& node) {
  std::erase_if(later_, [&](const auto& process) { return process.second == node; });
}

void Restored::JobDeleted(const std::string& job) {
  idle_.erase(job);
  live_.erase(job);
  behind_.erase(job);
  std::erase_if(later_, [&](const auto& process) { return process.first.first == job; });
}

std::optional<uint64_t> Restored::Attached(const std::string& job, const std::string& incarnation) {
  const auto known = live_.find(job);
  if (known == live_.end() || !known->second.attached.insert(incarnation).second) {
    return std::nullopt;
  }
  return known->second.newest_command;
}

bool Restored::Had(const std::string& job) const {
  return idle_.contains(job) || live_.contains(job);
}

bool Restored::MayStillRun(const std::string& job, absl::Time now) const {
  const auto later = later_.lower_bound({job, ""});
  return (later != later_.end() && later->first.first == job) ||
         (now < until_ && behind_.contains(job)) || (!awaited_.empty() && idle_.contains(job));
}

}  // namespace muster::cluster
