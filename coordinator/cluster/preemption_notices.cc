#include "coordinator/cluster/preemption_notices.h"

#include <algorithm>
#include <cstdint>

#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/ranks.h"

namespace muster::cluster {
namespace {

// The streams of the job's attached workers.
std::vector<PeerStreamId> StreamsOf(const Cluster& cluster, const jobs::Job& job) {
  std::vector<PeerStreamId> streams;
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const membership::Worker* worker = cluster.membership().FindWorker(job.id, rank);
    if (worker == nullptr || !worker->attached()) continue;
    streams.push_back(worker->session);
  }
  return streams;
}

}  // namespace

std::vector<SendToWorker> PreemptionNotices(const Cluster& cluster, const std::string& node,
                                            const std::string& reason, StoreState store) {
  std::vector<SendToWorker> notices;
  for (const auto& [id, ranks] : cluster.overview().RanksOn(node)) {
    const jobs::Job* job = cluster.Find(id);
    if (job == nullptr || !job->live() || job->ending() || jobs::EndsByItself(*job)) continue;
    const bool left_to_the_cluster =
        job->stop_requested() || !jobs::All(*job, &jobs::Rank::session_started);
    if (store == StoreState::kWorks && left_to_the_cluster) continue;
    for (const PeerStreamId stream : StreamsOf(cluster, *job)) {
      notices.push_back({stream, PreemptionNotice{reason}});
    }
  }
  return notices;
}

}  // namespace muster::cluster
