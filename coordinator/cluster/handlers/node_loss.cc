#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

jobs::RanksToEnd Preempt(HandlerContext& context, jobs::Job* job, const std::string& reason) {
  // Only the first notice is an event. A repeated drain, for example with another deadline, changes
  // nothing for the job.
  const bool first = job->interruption().empty();
  jobs::RanksToEnd ended;
  std::string how;
  if (jobs::OnPreempted(job, reason, context.now, &ended)) {
    if (!jobs::WritesCheckpoints(*job)) {
      how = "; it writes no checkpoints: it starts again from step 0 on another node";
    }
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      SendToRank(context, *job, rank, PreemptionNotice{job->interruption()});
    }
  } else {
    how = "; it is ended at once: it had not begun to train";
  }
  // A job that is being stopped ends anyway, so its preemption is no event.
  if (first && !job->interruption().empty() && !job->stop_requested()) {
    jobs::AddEvent(job, context.now, "PREEMPTED", absl::StrCat(job->interruption(), how));
  }
  return ended;
}

}  // namespace

void PreemptNode(HandlerContext& context, const std::string& node, const std::string& reason) {
  for (jobs::Job* job : context.jobs.LiveOn(node)) {
    ApplyListsChange(context, job, Preempt(context, job, reason));
  }
}

void EndSessionsOf(HandlerContext& context, const std::string& node, const std::string& why,
                   const std::function<bool(const std::string&)>& continues) {
  for (const PeerStreamId stream : context.membership.LoseNode(node, continues, context.now)) {
    Close(context, stream, Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION", why));
  }
}

void NodeLost(HandlerContext& context, const membership::Agent& agent) {
  const std::string node = agent.node;
  context.restored.ProcessesEnded(node);
  EndSessionsOf(context, node, absl::StrCat("the agent of node '", node, "' is lost"),
                [&](const std::string& id) {
                  const jobs::Job* job = context.jobs.Find(id);
                  return job != nullptr && job->plan.continue_when_cut_off;
                });
  const std::vector<jobs::Job*> there = context.jobs.LiveOn(node);
  const bool waits = std::any_of(there.begin(), there.end(), [](const jobs::Job* job) {
    return job->plan.continue_when_cut_off;
  });
  // ExpectForGood comes before scheduling, so that jobs that wait for the node keep their slots.
  if (waits) {
    context.membership.agents().ExpectForGood(agent);
  } else {
    context.batch.removed_nodes.push_back(node);
  }
  for (jobs::Job* job : there) {
    jobs::RanksToEnd ended;
    if (!job->plan.continue_when_cut_off) {
      ended = jobs::OnInterrupted(job, absl::StrCat("the agent of node '", node, "' was silent"),
                                  context.now);
    } else if (!job->cut_off.contains(node)) {
      jobs::OnNodeCutOff(job, node, true);
      jobs::AddEvent(job, context.now, "NODE_CUT_OFF",
                     absl::StrCat("node '", node, "' is cut off; its ranks are not replaced"));
    }
    ApplyListsChange(context, job, ended);
  }
}

void NodeFound(HandlerContext& context, const std::string& node) {
  for (jobs::Job* job : context.jobs.Open()) {
    if (!job->cut_off.contains(node)) continue;
    jobs::OnNodeCutOff(job, node, false);
    Changed(context, job);
  }
}

}  // namespace muster::cluster
