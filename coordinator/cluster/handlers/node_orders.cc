#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// The longest deadline. No drain needs longer, and an agent can add it to its clock without an
// overflow.
constexpr absl::Duration kLongestDrain = absl::Hours(7 * 24);

absl::Status CheckDeadline(const std::optional<absl::Duration>& deadline) {
  if (!deadline.has_value() || (*deadline > absl::ZeroDuration() && *deadline <= kLongestDrain)) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::StatusCode::kInvalidArgument, "DEADLINE_INVALID",
      absl::StrCat("the deadline is ", absl::FormatDuration(*deadline),
                   "; allowed is more than 0s and at most ", absl::FormatDuration(kLongestDrain)),
      {{"field", "deadline"}, {"limit", absl::FormatDuration(kLongestDrain)}});
}

// Stores the request. True unless the request is a repeat. `refusal`: the error of a request that
// is no repeat.
absl::StatusOr<bool> ActsOnNode(HandlerContext& context, const NodeRequest& request,
                                const absl::Status& refusal = absl::OkStatus()) {
  ASSIGN_OR_RETURN(const store::RequestRow* repeat,
                   context.requests.Repeat(request.request_id, request.fingerprint));
  if (repeat != nullptr) return false;
  RETURN_IF_ERROR(context.requests.CheckRoom(request.request_id));
  if (context.membership.agents().Find(request.node) == nullptr &&
      !context.nodes.Knows(request.node)) {
    return Refuse(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
                  absl::StrCat("there is no node '", request.node,
                               "'; `muster nodes` lists those whose agent is known"),
                  {{"node", request.node}});
  }
  RETURN_IF_ERROR(refusal);
  // The request is kept as long as the requests of a deleted job.
  context.Remember({.request_id = request.request_id,
                    .fingerprint = request.fingerprint,
                    .deleted_time = context.now});
  return true;
}

}  // namespace

absl::Status Handle(HandlerContext& context, const DrainNode& order) {
  const NodeRequest& request = order.request;
  RETURN_IF_ERROR(CheckDeadline(request.deadline));
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(context, request));
  if (!acts) return absl::OkStatus();
  const store::NodeMarkRow mark = context.nodes.Drain(request);
  context.Log(absl::StrCat("node '", request.node, "' is drained: ", mark.reason));
  SendToNode(context, request.node, DrainAgent{true, mark.reason, mark.drain_deadline});
  PreemptNode(context, request.node, absl::StrCat("node '", request.node, "' is drained"));
  Schedule(context);
  return absl::OkStatus();
}

absl::Status Handle(HandlerContext& context, const CordonNode& order) {
  const NodeRequest& request = order.request;
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(context, request));
  if (!acts) return absl::OkStatus();
  const store::NodeMarkRow mark = context.nodes.Cordon(request);
  context.Log(absl::StrCat("node '", request.node, "' is cordoned: ", mark.reason));
  Schedule(context);
  return absl::OkStatus();
}

absl::Status Handle(HandlerContext& context, const UncordonNode& order) {
  const NodeRequest& request = order.request;
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(context, request));
  if (!acts) return absl::OkStatus();
  context.nodes.Uncordon(request);
  context.Log(absl::StrCat("node '", request.node, "' is open again", request.By()));
  SendToNode(context, request.node, DrainAgent{false, "", std::nullopt});
  Schedule(context);
  return absl::OkStatus();
}

absl::Status Handle(HandlerContext& context, const ForgetNode& order) {
  const NodeRequest& request = order.request;
  const std::string& node = request.node;
  const membership::Agent* agent = context.membership.agents().Find(node);
  absl::Status attached;
  if (agent != nullptr && agent->attached()) {
    attached = Refuse(absl::StatusCode::kFailedPrecondition, "NODE_ATTACHED",
                      absl::StrCat("the agent of node '", node,
                                   "' is attached; to remove the node, stop the agent"),
                      {{"node", node}});
  }
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(context, request, attached));
  if (!acts) return absl::OkStatus();
  const std::string said = absl::StrCat("node '", node, "' is forgotten", request.By());
  context.Log(said);
  context.restored.ProcessesEnded(node);
  EndSessionsOf(context, node, said, [](const std::string&) { return false; });
  context.membership.agents().Forget(node);
  context.restored.NodeKnown(node);
  context.nodes.Forget(node);
  context.batch.removed_nodes.push_back(node);
  for (jobs::Job* job : context.jobs.LiveOn(node)) {
    jobs::AddEvent(job, context.now, "NODE_FORGOTTEN", said);
    jobs::OnNodeCutOff(job, node, false);
    jobs::RanksToEnd ended;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      if (job->ranks[rank].node != node) continue;
      const jobs::RanksToEnd more = jobs::OnLeaseOver(job, rank, context.now);
      ended.insert(ended.end(), more.begin(), more.end());
    }
    std::erase_if(ended, [&](uint32_t rank) { return job->ranks[rank].exited; });
    ApplyListsChange(context, job, ended);
  }
  Schedule(context);
  return absl::OkStatus();
}

}  // namespace muster::cluster
