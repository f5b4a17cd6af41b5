#include "coordinator/cluster/handlers/overview.h"

#include "coordinator/jobs/conclusion.h"
#include "coordinator/membership/membership.h"

namespace muster::cluster {

size_t Overview::QuarantinedSlots(const std::string& node) const {
  const auto known = state_.nodes.quarantined().find(node);
  return known == state_.nodes.quarantined().end() ? 0 : known->second.size();
}

uint64_t Overview::ActivityOn(const std::string& node) const {
  uint64_t activity = 0;
  for (const auto& [job, ranks] : state_.jobs.RanksOn(node)) {
    for (const uint32_t rank : ranks) {
      const membership::Worker* worker = state_.membership.FindWorker(job, rank);
      if (worker != nullptr) activity += worker->activity + worker->step;
    }
  }
  return activity;
}

uint64_t Overview::DrainActivity(PeerStreamId stream) const {
  const std::string* const node = state_.streams.NodeOf(stream);
  return node != nullptr && state_.nodes.IsBeingEmptied(*node) ? ActivityOn(*node) : 0;
}

std::vector<SendToWorker> Overview::PreemptionNotices(const std::string& node,
                                                      const std::string& reason,
                                                      StoreState store) const {
  std::vector<SendToWorker> notices;
  for (const auto& [id, ranks] : state_.jobs.RanksOn(node)) {
    const jobs::Job* job = state_.jobs.Find(id);
    if (job->ending() || jobs::EndsByItself(*job)) continue;
    const bool left_to_the_cluster =
        job->stop_requested() || !jobs::All(*job, &jobs::Rank::session_started);
    if (store == StoreState::kWorks && left_to_the_cluster) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const membership::Worker* worker = state_.membership.FindWorker(id, rank);
      if (worker == nullptr || !worker->attached()) continue;
      notices.push_back({worker->stream, PreemptionNotice{reason}});
    }
  }
  return notices;
}

const std::deque<std::string>& Overview::NewestSteps(const std::string& job_id) const {
  static const auto* const kNone = new std::deque<std::string>();
  return state_.jobs.Find(job_id) == nullptr ? *kNone : state_.jobs.NotesOf(job_id).newest_steps;
}

}  // namespace muster::cluster
