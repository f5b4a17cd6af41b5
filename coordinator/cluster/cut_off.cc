// Silent nodes: those that count as lost, those whose return is awaited (`when_cut_off: continue`),
// and those that an operator declares gone (`muster nodes forget`).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/events.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {

void Cluster::EndSessionsOf(const std::string& node, const std::string& why,
                            const std::function<bool(const std::string&)>& continues,
                            absl::Time now) {
  for (const PeerStreamId session : membership_.LoseNode(node, continues, now)) {
    Close(session, Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION", why));
  }
}

std::vector<jobs::Job*> Cluster::LiveJobsOn(const std::string& node) {
  std::vector<jobs::Job*> found;
  for (jobs::Job* job : jobs_.Open()) {
    const bool there =
        job->live && std::any_of(job->ranks.begin(), job->ranks.end(), [&](const jobs::Rank& rank) {
          return rank.node == node && !rank.exited;
        });
    if (there) found.push_back(job);
  }
  return found;
}

void Cluster::NodeLost(const membership::Agent& agent, absl::Time now) {
  const std::string node = agent.node;
  restored_.ProcessesEnded(node);
  EndSessionsOf(
      node, absl::StrCat("the agent of node '", node, "' is lost"),
      [this](const std::string& id) {
        const jobs::Job* job = Find(id);
        return job != nullptr && job->plan.continue_when_cut_off;
      },
      now);
  const std::vector<jobs::Job*> there = LiveJobsOn(node);
  const bool waits = std::any_of(there.begin(), there.end(), [](const jobs::Job* job) {
    return job->plan.continue_when_cut_off;
  });
  // This comes before scheduling: jobs that wait for the node keep their slots.
  if (waits) {
    membership_.ExpectForGood(agent);
  } else {
    batch_.removed_nodes.push_back(node);
  }
  for (jobs::Job* job : there) {
    jobs::Ended ended;
    if (!job->plan.continue_when_cut_off) {
      ended =
          jobs::OnInterrupted(job, absl::StrCat("the agent of node '", node, "' was silent"), now);
    } else if (!job->cut_off.contains(node)) {
      jobs::OnNodeCutOff(job, node, true);
      jobs::AddEvent(job, now, "NODE_CUT_OFF",
                     absl::StrCat("node '", node, "' is cut off; its ranks are not replaced"));
    }
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
}

void Cluster::NodeFound(const std::string& node, absl::Time now) {
  for (jobs::Job* job : jobs_.Open()) {
    if (!job->cut_off.contains(node)) continue;
    jobs::OnNodeCutOff(job, node, false);
    Changed(job, now);
  }
}

absl::Status Cluster::ForgetNode(const NodeRequest& request, absl::Time now) {
  const auto repeat = requests_.Repeat(request.request_id, request.fingerprint);
  if (!repeat.ok()) return repeat.status();
  if (*repeat != nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(requests_.CheckRoom(request.request_id));
  const std::string& node = request.node;
  const membership::Agent* agent = membership_.FindAgent(node);
  if (agent == nullptr && !nodes_.Knows(node)) {
    return Refuse(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
                  absl::StrCat("there is no node '", node, "'; `muster nodes` lists them"),
                  {{"node", node}});
  }
  if (agent != nullptr && agent->attached()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NODE_ATTACHED",
                  absl::StrCat("the agent of node '", node,
                               "' is attached; to remove the node, stop the agent"),
                  {{"node", node}});
  }
  // The request is kept as long as the requests of a deleted job.
  Remember(
      {.request_id = request.request_id, .fingerprint = request.fingerprint, .deleted_time = now});
  const std::string by =
      request.requested_by.empty() ? "" : absl::StrCat(" by ", request.requested_by);
  const std::string said = absl::StrCat("node '", node, "' is forgotten", by);
  effects_.push_back(Say{said});
  restored_.ProcessesEnded(node);
  EndSessionsOf(node, said, [](const std::string&) { return false; }, now);
  membership_.ForgetAgent(node);
  restored_.NodeKnown(node);
  nodes_.Forget(node);
  batch_.removed_nodes.push_back(node);
  for (jobs::Job* job : LiveJobsOn(node)) {
    jobs::AddEvent(job, now, "NODE_FORGOTTEN", said);
    jobs::OnNodeCutOff(job, node, false);
    jobs::Ended ended;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      if (job->ranks[rank].node != node) continue;
      const jobs::Ended more = jobs::OnCutOff(job, rank, now);
      ended.insert(ended.end(), more.begin(), more.end());
    }
    std::erase_if(ended, [&](uint32_t rank) { return job->ranks[rank].exited; });
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
  Schedule(now);
  return absl::OkStatus();
}

}  // namespace muster::cluster
