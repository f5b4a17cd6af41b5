// Events of nodes besides their agents' leases: drains, cordons, and nodes on which jobs fail.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/preemption_notices.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// No drain needs longer, and an agent can add this to its clock without an overflow.
constexpr absl::Duration kLongestDrain = absl::Hours(7 * 24);

std::string By(const std::string& who) { return who.empty() ? "" : absl::StrCat(" by ", who); }

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

}  // namespace

// ---- Open and closed.

NodeView Cluster::View(const std::string& node) const { return nodes_.View(node, last_tick_); }

// ---- As asked.

absl::StatusOr<bool> Cluster::ActsOnNode(const NodeRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(const store::RequestRow* repeat,
                   requests_.Repeat(request.request_id, request.fingerprint));
  if (repeat != nullptr) return false;
  RETURN_IF_ERROR(requests_.CheckRoom(request.request_id));
  if (membership_.FindAgent(request.node) == nullptr && !nodes_.Knows(request.node)) {
    return Refuse(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
                  absl::StrCat("there is no node '", request.node,
                               "'; `muster nodes` lists those whose agent is known"),
                  {{"node", request.node}});
  }
  // The request is kept as long as the requests of a deleted job.
  Remember(
      {.request_id = request.request_id, .fingerprint = request.fingerprint, .deleted_time = now});
  return true;
}

absl::Status Cluster::DrainNode(const NodeRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckDeadline(request.deadline));
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(request, now));
  if (!acts) return absl::OkStatus();
  const store::NodeMarkRow mark = nodes_.Drain(request);
  effects_.push_back(Say{absl::StrCat("node '", request.node, "' is drained: ", mark.reason)});
  SendToNode(request.node, DrainAgent{true, mark.reason, mark.drain_deadline});
  PreemptNode(request.node, absl::StrCat("node '", request.node, "' is drained"), now);
  Schedule(now);
  return absl::OkStatus();
}

absl::Status Cluster::CordonNode(const NodeRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(request, now));
  if (!acts) return absl::OkStatus();
  const store::NodeMarkRow mark = nodes_.Cordon(request);
  effects_.push_back(Say{absl::StrCat("node '", request.node, "' is cordoned: ", mark.reason)});
  Schedule(now);
  return absl::OkStatus();
}

absl::Status Cluster::UncordonNode(const NodeRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(const bool acts, ActsOnNode(request, now));
  if (!acts) return absl::OkStatus();
  nodes_.Uncordon(request);
  effects_.push_back(
      Say{absl::StrCat("node '", request.node, "' is open again", By(request.requested_by))});
  SendToNode(request.node, DrainAgent{false, "", std::nullopt});
  Schedule(now);
  return absl::OkStatus();
}

// ---- Being stopped.

void Cluster::AgentDraining(PeerStreamId session, const std::string& reason, absl::Time now) {
  AgentHeard(session, now);
  const std::string* const agent = streams_.NodeOf(session);
  if (agent == nullptr) return;
  const std::string node = *agent;
  if (!nodes_.AgentStops(node, reason)) return;
  effects_.push_back(Say{absl::StrCat("node '", node, "': its agent is being stopped: ", reason)});
  PreemptNode(node, WhyAgentStops(node), now);
  Schedule(now);
}

void Cluster::Drain(const std::string& node, absl::Time now) {
  nodes_.StopAgent(node, kMusterdStops);
  PreemptNode(node, kMusterdStops, now);
}

void Cluster::Interrupt(const std::string& node, absl::Time now) {
  EachJobOn(
      node,
      [&](jobs::Job* job) {
        return jobs::OnInterrupted(job, absl::StrCat("node '", node, "' is being stopped"), now);
      },
      now);
}

void Cluster::PreemptNode(const std::string& node, const std::string& reason, absl::Time now) {
  EachJobOn(
      node, [&](jobs::Job* job) { return Preempt(job, reason, now); }, now);
}

void Cluster::EachJobOn(const std::string& node,
                        const std::function<jobs::Ended(jobs::Job*)>& change, absl::Time now) {
  for (jobs::Job* job : LiveJobsOn(node)) {
    const jobs::Ended ended = change(job);
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
}

jobs::Ended Cluster::Preempt(jobs::Job* job, const std::string& reason, absl::Time now) {
  // Only the first notice is an event: a repeated drain, perhaps with another deadline or of
  // another node of the job, changes nothing for the job.
  const bool first = job->interruption.empty();
  const char* const from_step_zero =
      jobs::WritesCheckpoints(*job)
          ? ""
          : "; it writes no checkpoints: it starts again from step 0 on another node";
  jobs::Ended ended;
  std::string how;
  if (jobs::OnPreempted(job, reason, now, &ended)) {
    how = from_step_zero;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      SendToRank(*job, rank, PreemptionNotice{job->interruption});
    }
  } else {
    how = "; it is ended at once: it had not begun to train";
  }
  // A job that is being stopped ends anyway: the preemption is no event.
  if (first && !job->interruption.empty() && !job->stop_requested) {
    jobs::AddEvent(job, now, "PREEMPTED", absl::StrCat(job->interruption, how));
  }
  return ended;
}

void Cluster::SlotQuarantined(PeerStreamId session, const SlotQuarantine& quarantine,
                              absl::Time now) {
  AgentHeard(session, now);
  const std::string* const agent = streams_.NodeOf(session);
  if (agent == nullptr) return;
  const std::string node = *agent;
  const membership::Agent* known = membership_.FindAgent(node);
  if (known == nullptr || !HasSlot(*known, quarantine.slot)) return;
  nodes_.Quarantine(node, quarantine.slot, quarantine.quarantined);
  if (!quarantine.quarantined) {
    effects_.push_back(
        Say{absl::StrCat("node '", node, "': slot ", quarantine.slot, " can be used again")});
    return Schedule(now);
  }
  effects_.push_back(Say{absl::StrCat(
      "node '", node, "': slot ", quarantine.slot, " is not used: process ", quarantine.pid,
      " of job '", quarantine.worker.job, "' does not end (", quarantine.reason, ")")});
  if (!SpeaksFor(session, quarantine.worker) || CurrentRank(quarantine.worker) == nullptr) return;
  jobs::Job* job = FindJob(quarantine.worker.job);
  const jobs::Ended ended = jobs::OnGone(
      job, quarantine.worker.rank,
      absl::StrCat("process ", quarantine.pid, " does not end although it was killed"), now);
  ListsChanged(job);
  ApplyJobChange(job, ended, now);
}

size_t Cluster::QuarantinedSlots(const std::string& node) const {
  const auto known = nodes_.quarantined().find(node);
  return known == nodes_.quarantined().end() ? 0 : known->second.size();
}

bool Cluster::HasProcesses(const std::string& node) const { return !RanksOn(node).empty(); }

uint64_t Cluster::ActivityOn(const std::string& node) const {
  uint64_t activity = 0;
  for (const auto& [job, ranks] : RanksOn(node)) {
    for (const uint32_t rank : ranks) {
      const membership::Worker* worker = membership_.FindWorker(job, rank);
      if (worker != nullptr) activity += worker->activity + worker->step;
    }
  }
  return activity;
}

uint64_t Cluster::DrainActivity(PeerStreamId session) const {
  const std::string* const node = streams_.NodeOf(session);
  return node != nullptr && nodes_.IsBeingEmptied(*node) ? ActivityOn(*node) : 0;
}

// ---- At fault.

void Cluster::JudgeNodes(jobs::Job* job, absl::Time now) {
  uint64_t& judged = jobs_.NotesOf(job->id).judged;
  if (judged == job->generation) return;
  judged = job->generation;
  if (job->state == jobs::State::kSucceeded) return NodesWork(*job);
  const auto failure = jobs::RootCause(job->failures);
  if (!failure.has_value() || failure->root.generation != job->generation) return;
  const jobs::FailureNote& root = failure->root;
  if (root.permanent && root.kind != jobs::FailureKind::kNodeFault) return;
  // If the agent process on which it failed is gone, there is no node to leave out.
  const jobs::Rank& rank = job->ranks[root.rank];
  const membership::Agent* agent = membership_.FindAgent(root.node);
  if (agent == nullptr || agent->incarnation != rank.agent_incarnation) return;
  jobs::NodeHealth::Fault fault{
      .job = job->id,
      .reason = absl::StrCat("job '", job->id, "' generation ", job->generation, " rank ",
                             root.rank, ": ", root.reason)};
  if (root.kind == jobs::FailureKind::kNodeFault) {
    fault.kind = rank.attached ? jobs::NodeHealth::Fault::Kind::kSaidByWorker
                               : jobs::NodeHealth::Fault::Kind::kPrograms;
  }
  if (!nodes_.Failed(root.node, std::move(fault), now)) {
    // The node is not left out, but the same job has failed there several times: the node may still
    // be the cause.
    if (nodes_.health().FailuresOf(job->id, root.node, now) == jobs::NodeHealth::kFaults) {
      jobs::AddEvent(job, now, "NODE_DOUBTED",
                     absl::StrCat("node '", root.node, "' is used only if no other node has room: ",
                                  nodes_.health().Doubts(root.node, now)));
    }
    return;
  }
  const std::string said =
      absl::StrCat("node '", root.node, "' ", nodes_.WhyClosed(root.node, now));
  jobs::AddEvent(job, now, "NODE_LEFT_OUT", said);
  effects_.push_back(Say{said});
}

void Cluster::NodesWork(const jobs::Job& job) {
  for (const jobs::Rank& rank : job.ranks) nodes_.Works(rank.node);
}

}  // namespace muster::cluster
