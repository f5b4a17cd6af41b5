// Events of agents.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// False: the process belongs to a deleted job that had this id before. Processes of earlier
// generations are not stored, so for these the answer is always true.
bool MayBeOf(const WorkerId& worker, const jobs::Job& job) {
  if (worker.generation != job.generation) return worker.generation < job.generation;
  return worker.rank < job.ranks.size() && job.ranks[worker.rank].incarnation == worker.incarnation;
}

}  // namespace

void Cluster::AgentProcessGone(const std::string& node, const std::string& incarnation,
                               const std::set<std::string>& left, const std::string& reason,
                               absl::Time now) {
  for (jobs::Job* job : jobs_.Open()) {
    if (!job->live) continue;
    jobs::Ended ended;
    bool any = false;
    // All ranks of a job are handled before its state is applied: the next generation must not
    // start while some of its ranks on this node still count as running.
    const uint64_t generation = job->generation;
    for (uint32_t rank = 0; rank < job->ranks.size() && job->live; ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.exited || r.node != node || r.agent_incarnation == incarnation) continue;
      // The process may have ended, but the new agent still sends its reports and its exit.
      if (left.contains(r.incarnation)) {
        job->ranks[rank].agent_incarnation = incarnation;
        jobs_.RankChanged(job->id, rank);
        continue;
      }
      const jobs::Ended more = jobs::OnGone(job, rank, reason, now);
      ended.insert(ended.end(), more.begin(), more.end());
      any = true;
    }
    if (!any || job->generation != generation) continue;
    std::erase_if(ended, [&](uint32_t rank) { return job->ranks[rank].exited; });
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
}

absl::Status Cluster::AttachAgent(PeerStreamId session, const AgentHello& hello, absl::Time now) {
  if (IsTooOld(hello.protocol, kAgentProtocol)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "AGENT_TOO_OLD",
                  absl::StrCat("the agent of node '", hello.node, "' speaks protocol ",
                               hello.protocol, "; this musterd speaks ", kAgentProtocol,
                               " and knows the one before: update the programs of the node"),
                  {{"node", hello.node}});
  }
  if (IsTooNew(hello.protocol, kAgentProtocol)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "PROGRAM_TOO_NEW",
                  absl::StrCat("the agent of node '", hello.node, "' speaks protocol ",
                               hello.protocol, "; this musterd speaks ", kAgentProtocol,
                               " and knows the next one: update musterd first"),
                  {{"node", hello.node}});
  }
  RETURN_IF_ERROR(
      nodes_.CheckName(hello, membership_.FindAgent(hello.node), options_.timing.lease));
  if (membership_.FindAgent(hello.node) == nullptr &&
      membership_.agents().size() >= options_.limits.nodes) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_NODES",
                  absl::StrCat("node '", hello.node, "': ", membership_.agents().size(),
                               " nodes hold a lease, as many as allowed"),
                  {{"limit", absl::StrCat(options_.limits.nodes)}, {"node", hello.node}});
  }
  const auto attached = membership_.AttachAgent({.node = hello.node,
                                                 .incarnation = hello.incarnation,
                                                 .host = hello.host,
                                                 .slots = hello.slots,
                                                 .gpus = hello.gpus,
                                                 .version = hello.version,
                                                 .protocol = hello.protocol},
                                                session, now);
  Close(attached.replaced,
        attached.new_incarnation
            ? Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                     absl::StrCat("node '", hello.node, "': a newer agent process has this name"),
                     {{"node", hello.node}})
            : Refuse(absl::StatusCode::kAborted, "NEWER_STREAM",
                     "a newer stream of this agent is attached", {{"node", hello.node}}));
  streams_.AddAgent(session, hello.node);
  batch_.nodes.push_back({hello.node, hello.incarnation, hello.host, hello.slots});
  std::erase(batch_.removed_nodes, hello.node);
  std::string offers = jobs::CountOf(hello.slots, jobs::Device::kCpu);
  if (const auto gpus = static_cast<uint32_t>(hello.gpus.size()); gpus > 0) {
    absl::StrAppend(&offers, ", ", jobs::CountOf(gpus, jobs::Device::kCuda));
  }
  effects_.push_back(Say{absl::StrCat("node '", hello.node, "' is attached: ", offers)});
  effects_.push_back(SendToAgent{session, WelcomeAgent{options_.timing}});
  NodeFound(hello.node, now);
  std::set<uint32_t> quarantined;
  // The agent may have been started again with fewer slots.
  for (const uint32_t slot : hello.quarantined_slots) {
    if (HasSlot(*membership_.FindAgent(hello.node), slot)) quarantined.insert(slot);
  }
  nodes_.Attached(hello, attached.new_incarnation, std::move(quarantined));
  const store::NodeMarkRow mark = nodes_.MarkOf(hello.node);
  // The agent may have missed the beginning or the end of a drain.
  DrainAgent drain{mark.drained, "", std::nullopt};
  if (mark.drained) {
    drain.reason = mark.reason;
    drain.deadline = mark.drain_deadline;
  }
  effects_.push_back(SendToAgent{session, std::move(drain)});
  restored_.NodeKnown(hello.node);
  // This comes first: jobs do not start while such processes are known.
  restored_.ProcessesEnded(hello.node);
  EndLaterProcesses(hello, now);
  std::set<std::string> running;
  for (const RunningWorker& worker : hello.running) running.insert(worker.worker.incarnation);
  AgentProcessGone(hello.node, hello.incarnation, running,
                   absl::StrCat("the agent of node '", hello.node,
                                "' ended, and its workers with it; a new one is attached"),
                   now);
  // A process that was killed by a signal is a more certain cause than processes that ended with an
  // exit code, perhaps as a consequence of it.
  std::vector<WorkerExit> exits = hello.exits;
  std::stable_partition(exits.begin(), exits.end(), [](const WorkerExit& exit) {
    return exit.exit.cause == jobs::Exit::Cause::kSignal;
  });
  for (const WorkerExit& exit : exits) WorkerExited(session, exit, now);
  for (const RunningWorker& worker : hello.running) {
    jobs::Rank* rank = CurrentRank(worker.worker);
    if (rank != nullptr && SpeaksFor(session, worker.worker)) {
      rank->pid = worker.pid;
      jobs_.RankChanged(worker.worker.job, worker.worker.rank);
      // Its own stream may attach later. Or the process has ended and the agent has its reports.
      // Until one of these is known the process does not count as lost.
      if (rank->attached) membership_.WorkerHeard(worker.worker, now);
    } else {
      SendToNode(hello.node, StopWorker{worker.worker, options_.end_timeouts.kill});
    }
  }
  for (const jobs::Job* job : jobs_.Open()) {
    if (!job->live) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.node != hello.node || r.exited) continue;
      const bool runs = running.contains(r.incarnation);
      if (job->ending || (r.finished && !runs)) {
        SendToNode(r.node, StopWorker{job->Worker(rank), options_.end_timeouts.kill});
      } else if (!runs) {
        SendToNode(r.node, StartOf(*job, rank));
      }
    }
  }
  if (!hello.draining.empty()) AgentDraining(session, hello.draining, now);
  Schedule(now);
  return absl::OkStatus();
}

bool Cluster::AgentHeard(PeerStreamId session, absl::Time now) {
  const std::string* const node = streams_.NodeOf(session);
  if (node == nullptr) return false;
  membership_.AgentHeard(*node, now);
  return true;
}

bool Cluster::MayBeOn(const std::string& node, const WorkerId& worker) const {
  const jobs::Job* job = Find(worker.job);
  // Nothing is known of the process, and nothing that is said of it counts.
  if (job == nullptr || worker.generation > job->generation) return true;
  if (worker.generation == job->generation) {
    const bool known = worker.rank < job->ranks.size() &&
                       job->ranks[worker.rank].incarnation == worker.incarnation;
    return !known || job->ranks[worker.rank].node == node;
  }
  // Reports and lines of earlier generations may come late.
  const JobNotes& notes = jobs_.NotesOf(worker.job);
  return worker.generation < notes.known_since || notes.nodes.contains(node);
}

bool Cluster::SpeaksFor(PeerStreamId session, const WorkerId& worker) {
  const std::string* node = streams_.NodeOf(session);
  if (node == nullptr) return false;
  if (MayBeOn(*node, worker)) return true;
  if (streams_.FirstForeignProcess(session)) {
    effects_.push_back(Say{absl::StrCat(
        "node '", *node, "': its agent speaks of a process that is not on this node (rank ",
        worker.rank, " of generation ", worker.generation, " of job '", worker.job,
        "'): this is ignored, and so is more of this kind")});
  }
  return false;
}

void Cluster::WorkerStarted(PeerStreamId session, const RunningWorker& worker, absl::Time now) {
  AgentHeard(session, now);
  if (!SpeaksFor(session, worker.worker)) return;
  jobs::Rank* rank = CurrentRank(worker.worker);
  if (rank == nullptr || rank->pid == worker.pid) return;
  rank->pid = worker.pid;
  jobs_.RankChanged(worker.worker.job, worker.worker.rank);
  Changed(FindJob(worker.worker.job), now);
}

void Cluster::WorkerExited(PeerStreamId session, const WorkerExit& exit, absl::Time now) {
  // The stream is being closed; the agent says it again on its next one.
  if (!AgentHeard(session, now)) return;
  // An agent of 0.3.0 does not announce a stop that was asked for between its hello and its
  // welcome.
  if (exit.exit.cause == jobs::Exit::Cause::kStartError &&
      exit.exit.why == jobs::Exit::Why::kAgentStopped) {
    AgentDraining(session, "it accepts no more workers", now);
  }
  jobs::Rank* rank = SpeaksFor(session, exit.worker) ? CurrentRank(exit.worker) : nullptr;
  if (rank != nullptr) {
    if (exit.pid != 0) rank->pid = exit.pid;
    jobs::Job* job = FindJob(exit.worker.job);
    const jobs::Ended ended =
        jobs::OnExit(job, exit.worker.rank, exit.exit, options_.end_timeouts, now);
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
  effects_.push_back(SendToAgent{session, AckExit{exit.worker}});
  restored_.ProcessEnded(exit.worker.job, exit.worker.incarnation, *streams_.NodeOf(session));
}

void Cluster::WorkerLogged(PeerStreamId session, const WorkerId& worker,
                           const std::vector<std::string>& lines, absl::Time now) {
  AgentHeard(session, now);
  jobs::Job* job = FindJob(worker.job);
  if (job == nullptr || lines.empty() || !MayBeOf(worker, *job)) return;
  if (!SpeaksFor(session, worker)) return;
  for (const std::string& line : lines) {
    batch_.logs.push_back({worker.job, ++job->log_sequence, worker.generation, worker.rank, line});
  }
  jobs_.MustBeStored(*job);
  effects_.push_back(LogsChanged{job->id});
}

jobs::Rank* Cluster::CurrentRank(const WorkerId& id) {
  jobs::Job* job = FindJob(id.job);
  if (job == nullptr || !job->live || job->generation != id.generation ||
      id.rank >= job->ranks.size()) {
    return nullptr;
  }
  jobs::Rank& rank = job->ranks[id.rank];
  return rank.exited || rank.incarnation != id.incarnation ? nullptr : &rank;
}

}  // namespace muster::cluster
