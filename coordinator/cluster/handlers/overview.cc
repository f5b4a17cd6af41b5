#include "coordinator/cluster/handlers/overview.h"

#include "coordinator/membership/membership.h"

namespace muster::cluster {

size_t Overview::QuarantinedSlots(const std::string& node) const {
  const auto known = parts_.nodes.quarantined().find(node);
  return known == parts_.nodes.quarantined().end() ? 0 : known->second.size();
}

uint64_t Overview::ActivityOn(const std::string& node) const {
  uint64_t activity = 0;
  for (const auto& [job, ranks] : parts_.jobs.RanksOn(node)) {
    for (const uint32_t rank : ranks) {
      const membership::Worker* worker = parts_.membership.FindWorker(job, rank);
      if (worker != nullptr) activity += worker->activity + worker->step;
    }
  }
  return activity;
}

uint64_t Overview::DrainActivity(PeerStreamId session) const {
  const std::string* const node = parts_.streams.NodeOf(session);
  return node != nullptr && parts_.nodes.IsBeingEmptied(*node) ? ActivityOn(*node) : 0;
}

const std::deque<std::string>& Overview::NewestSteps(const std::string& job_id) const {
  static const auto* const kNone = new std::deque<std::string>();
  return parts_.jobs.Find(job_id) == nullptr ? *kNone : parts_.jobs.NotesOf(job_id).newest_steps;
}

}  // namespace muster::cluster
