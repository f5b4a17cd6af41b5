#include "coordinator/cluster/handlers/cut_off.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/orders.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {

void EndSessionsOf(Turn& turn, const std::string& node, const std::string& why,
                   const std::function<bool(const std::string&)>& continues) {
  for (const PeerStreamId session : turn.membership.LoseNode(node, continues, turn.now)) {
    Close(turn, session, Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION", why));
  }
}

void NodeLost(Turn& turn, const membership::Agent& agent) {
  const std::string node = agent.node;
  turn.restored.ProcessesEnded(node);
  EndSessionsOf(turn, node, absl::StrCat("the agent of node '", node, "' is lost"),
                [&](const std::string& id) {
                  const jobs::Job* job = turn.jobs.Find(id);
                  return job != nullptr && job->plan.continue_when_cut_off;
                });
  const std::vector<jobs::Job*> there = turn.jobs.LiveOn(node);
  const bool waits = std::any_of(there.begin(), there.end(), [](const jobs::Job* job) {
    return job->plan.continue_when_cut_off;
  });
  // This comes before scheduling: jobs that wait for the node keep their slots.
  if (waits) {
    turn.membership.agents().ExpectForGood(agent);
  } else {
    turn.batch.removed_nodes.push_back(node);
  }
  for (jobs::Job* job : there) {
    jobs::Ended ended;
    if (!job->plan.continue_when_cut_off) {
      ended = jobs::OnInterrupted(job, absl::StrCat("the agent of node '", node, "' was silent"),
                                  turn.now);
    } else if (!job->cut_off.contains(node)) {
      jobs::OnNodeCutOff(job, node, true);
      jobs::AddEvent(job, turn.now, "NODE_CUT_OFF",
                     absl::StrCat("node '", node, "' is cut off; its ranks are not replaced"));
    }
    ApplyListsChange(turn, job, ended);
  }
}

void NodeFound(Turn& turn, const std::string& node) {
  for (jobs::Job* job : turn.jobs.Open()) {
    if (!job->cut_off.contains(node)) continue;
    jobs::OnNodeCutOff(job, node, false);
    Changed(turn, job);
  }
}

}  // namespace muster::cluster
