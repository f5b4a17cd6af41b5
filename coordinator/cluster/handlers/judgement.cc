#include "coordinator/cluster/handlers/judgement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/node_health.h"
#include "coordinator/membership/membership.h"

namespace muster::cluster {

void NodesWork(Turn& turn, const jobs::Job& job) {
  for (const jobs::Rank& rank : job.ranks) turn.nodes.Works(rank.node);
}

void JudgeNodes(Turn& turn, jobs::Job* job) {
  uint64_t& judged = turn.jobs.NotesOf(job->id).judged;
  if (judged == job->generation) return;
  judged = job->generation;
  if (job->state() == jobs::State::kSucceeded) return NodesWork(turn, *job);
  const auto failure = jobs::RootCause(job->failures);
  if (!failure.has_value() || failure->root.generation != job->generation) return;
  const jobs::FailureNote& root = failure->root;
  if (root.permanent && root.kind != jobs::FailureKind::kNodeFault) return;
  // If the agent process on which it failed is gone, there is no node to leave out.
  const jobs::Rank& rank = job->ranks[root.rank];
  const membership::Agent* agent = turn.membership.agents().Find(root.node);
  if (agent == nullptr || agent->incarnation != rank.agent_incarnation) return;
  jobs::NodeHealth::Fault fault{
      .job = job->id,
      .reason = absl::StrCat("job '", job->id, "' generation ", job->generation, " rank ",
                             root.rank, ": ", root.reason)};
  if (root.kind == jobs::FailureKind::kNodeFault) {
    fault.kind = rank.attached ? jobs::NodeHealth::Fault::Kind::kSaidByWorker
                               : jobs::NodeHealth::Fault::Kind::kPrograms;
  }
  if (!turn.nodes.Failed(root.node, std::move(fault), turn.now)) {
    // The node is not left out, but the same job has failed there several times: the node may still
    // be the cause.
    if (turn.nodes.health().FailuresOf(job->id, root.node, turn.now) == jobs::NodeHealth::kFaults) {
      jobs::AddEvent(job, turn.now, "NODE_DOUBTED",
                     absl::StrCat("node '", root.node, "' is used only if no other node has room: ",
                                  turn.nodes.health().Doubts(root.node, turn.now)));
    }
    return;
  }
  const std::string said =
      absl::StrCat("node '", root.node, "' ", turn.nodes.WhyClosed(root.node, turn.now));
  jobs::AddEvent(job, turn.now, "NODE_LEFT_OUT", said);
  turn.Say(said);
}

}  // namespace muster::cluster
