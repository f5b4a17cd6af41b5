#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/cluster/parts/line.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/placement.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// False if the process belongs to a deleted job that had this id before. Processes of earlier
// generations are not stored, so for them the answer is always true.
bool MayBeOf(const WorkerId& worker, const jobs::Job& job) {
  if (worker.generation != job.generation) return worker.generation < job.generation;
  return worker.rank < job.ranks.size() && job.ranks[worker.rank].incarnation == worker.incarnation;
}

// Handles a new agent process on the node. `left`: the incarnations of the former agent's workers
// for which the new agent still sends reports.
void AgentProcessGone(Turn& turn, const std::string& node, const std::string& incarnation,
                      const std::set<std::string>& left, const std::string& reason) {
  for (jobs::Job* job : turn.jobs.Open()) {
    if (!job->live()) continue;
    jobs::Ended ended;
    bool any = false;
    // All ranks of a job are handled before its state is applied. The next generation must not
    // start while some of its ranks on this node still count as running.
    const uint64_t generation = job->generation;
    for (uint32_t rank = 0; rank < job->ranks.size() && job->live(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.exited || r.node != node || r.agent_incarnation == incarnation) continue;
      // The process may have ended, but the new agent still sends its reports and its exit.
      if (left.contains(r.incarnation)) {
        job->ranks[rank].agent_incarnation = incarnation;
        turn.jobs.RankChanged(job->id, rank);
        continue;
      }
      const jobs::Ended more = jobs::OnGone(job, rank, reason, turn.now);
      ended.insert(ended.end(), more.begin(), more.end());
      any = true;
    }
    if (!any || job->generation != generation) continue;
    std::erase_if(ended, [&](uint32_t rank) { return job->ranks[rank].exited; });
    ApplyListsChange(turn, job, ended);
  }
}

}  // namespace

absl::Status AttachAgent(Turn& turn, PeerStreamId session, const AgentHello& hello) {
  RETURN_IF_ERROR(
      With(CheckProtocol(absl::StrCat("the agent of node '", hello.node, "'"), hello.protocol,
                         kAgentProtocol, "AGENT_TOO_OLD", "update the programs of the node"),
           {{"node", hello.node}}));
  RETURN_IF_ERROR(turn.nodes.CheckName(hello, turn.membership.agents().Find(hello.node),
                                       turn.options.timing.lease));
  if (turn.membership.agents().Find(hello.node) == nullptr &&
      turn.membership.agents().all().size() >= turn.options.limits.nodes) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_NODES",
                  absl::StrCat("node '", hello.node, "': ", turn.membership.agents().all().size(),
                               " nodes hold a lease, as many as allowed"),
                  {{"limit", absl::StrCat(turn.options.limits.nodes)}, {"node", hello.node}});
  }
  const auto attached = turn.membership.agents().Attach({.node = hello.node,
                                                         .incarnation = hello.incarnation,
                                                         .host = hello.host,
                                                         .slots = hello.slots,
                                                         .gpus = hello.gpus,
                                                         .version = hello.version,
                                                         .protocol = hello.protocol},
                                                        session, turn.now);
  Close(turn, attached.replaced,
        attached.new_incarnation
            ? Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                     absl::StrCat("node '", hello.node, "': a newer agent process has this name"),
                     {{"node", hello.node}})
            : Refuse(absl::StatusCode::kAborted, "NEWER_STREAM",
                     "a newer stream of this agent is attached", {{"node", hello.node}}));
  turn.streams.AddAgent(session, hello.node);
  turn.batch.nodes.push_back({hello.node, hello.incarnation, hello.host, hello.slots});
  std::erase(turn.batch.removed_nodes, hello.node);
  std::string offers = jobs::CountOf(hello.slots, jobs::Device::kCpu);
  if (const auto gpus = static_cast<uint32_t>(hello.gpus.size()); gpus > 0) {
    absl::StrAppend(&offers, ", ", jobs::CountOf(gpus, jobs::Device::kCuda));
  }
  turn.Say(absl::StrCat("node '", hello.node, "' is attached: ", offers));
  turn.effects.push_back(SendToAgent{session, WelcomeAgent{turn.options.timing}});
  NodeFound(turn, hello.node);
  std::set<uint32_t> quarantined;
  // The agent may have been started again with fewer slots.
  for (const uint32_t slot : hello.quarantined_slots) {
    if (HasSlot(*turn.membership.agents().Find(hello.node), slot)) quarantined.insert(slot);
  }
  turn.nodes.Attached(hello, attached.new_incarnation, std::move(quarantined));
  const store::NodeMarkRow mark = turn.nodes.MarkOf(hello.node);
  // The agent may have missed the beginning or the end of a drain.
  DrainAgent drain{mark.drained, "", std::nullopt};
  if (mark.drained) {
    drain.reason = mark.reason;
    drain.deadline = mark.drain_deadline;
  }
  turn.effects.push_back(SendToAgent{session, std::move(drain)});
  turn.restored.NodeKnown(hello.node);
  // The hello names the processes of lost generations that still run here. They are recorded before
  // anything below starts a job, because their jobs must not start yet.
  turn.restored.ProcessesEnded(hello.node);
  EndLaterProcesses(turn, hello);
  std::set<std::string> running;
  for (const RunningWorker& worker : hello.running) running.insert(worker.worker.incarnation);
  AgentProcessGone(turn, hello.node, hello.incarnation, running,
                   absl::StrCat("the agent of node '", hello.node,
                                "' ended, and its workers with it; a new one is attached"));
  // Signals come first: an exit code may be a consequence of another process's end by a signal.
  std::vector<WorkerExit> exits = hello.exits;
  std::stable_partition(exits.begin(), exits.end(), [](const WorkerExit& exit) {
    return exit.exit.cause == jobs::Exit::Cause::kSignal;
  });
  for (const WorkerExit& exit : exits) Handle(turn, session, exit);
  for (const RunningWorker& worker : hello.running) {
    jobs::Rank* rank = turn.jobs.CurrentRank(worker.worker);
    if (rank != nullptr && SpeaksFor(turn, session, worker.worker)) {
      rank->pid = worker.pid;
      turn.jobs.RankChanged(worker.worker.job, worker.worker.rank);
      // The process may still attach, or it has ended and the agent has its reports. Until then it
      // does not count as lost.
      if (rank->attached) turn.membership.WorkerHeard(worker.worker, turn.now);
    } else {
      SendToNode(turn, hello.node, StopWorker{worker.worker, turn.options.end_timeouts.kill});
    }
  }
  for (const jobs::Job* job : turn.jobs.Open()) {
    if (!job->live()) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.node != hello.node || r.exited) continue;
      const bool runs = running.contains(r.incarnation);
      if (job->ending() || (r.finished && !runs)) {
        SendToNode(turn, r.node, StopOf(turn, *job, rank));
      } else if (!runs) {
        SendToNode(turn, r.node, StartOf(*job, rank));
      }
    }
  }
  if (!hello.draining.empty()) Handle(turn, session, AgentStops{hello.draining});
  Schedule(turn);
  return absl::OkStatus();
}

bool AgentHeard(Turn& turn, PeerStreamId session) {
  const std::string* const node = turn.streams.NodeOf(session);
  if (node == nullptr) return false;
  turn.membership.agents().Heard(*node, turn.now);
  return true;
}

bool SpeaksFor(Turn& turn, PeerStreamId session, const WorkerId& worker) {
  const std::string* node = turn.streams.NodeOf(session);
  if (node == nullptr) return false;
  if (turn.jobs.MayBeOn(*node, worker)) return true;
  if (turn.streams.FirstForeignProcess(session)) {
    turn.Say(absl::StrCat("node '", *node,
                          "': its agent speaks of a process that is not on this node (rank ",
                          worker.rank, " of generation ", worker.generation, " of job '",
                          worker.job, "'): this is ignored, and so is more of this kind"));
  }
  return false;
}

void Handle(Turn& turn, PeerStreamId session, const RunningWorker& worker) {
  AgentHeard(turn, session);
  if (!SpeaksFor(turn, session, worker.worker)) return;
  jobs::Rank* rank = turn.jobs.CurrentRank(worker.worker);
  if (rank == nullptr || rank->pid == worker.pid) return;
  rank->pid = worker.pid;
  turn.jobs.RankChanged(worker.worker.job, worker.worker.rank);
  Changed(turn, turn.jobs.Find(worker.worker.job));
}

void Handle(Turn& turn, PeerStreamId session, const WorkerExit& exit) {
  // The stream is being closed. The agent repeats the exit on its next stream.
  if (!AgentHeard(turn, session)) return;
  // An agent of 0.3.0 does not announce a stop that came between its hello and its welcome.
  if (exit.exit.cause == jobs::Exit::Cause::kStartError &&
      exit.exit.why == jobs::Exit::Why::kAgentStopped) {
    Handle(turn, session, AgentStops{"it accepts no more workers"});
  }
  jobs::Rank* rank =
      SpeaksFor(turn, session, exit.worker) ? turn.jobs.CurrentRank(exit.worker) : nullptr;
  if (rank != nullptr) {
    if (exit.pid != 0) rank->pid = exit.pid;
    jobs::Job* job = turn.jobs.Find(exit.worker.job);
    const jobs::Ended ended =
        jobs::OnExit(job, exit.worker.rank, exit.exit, turn.options.end_timeouts, turn.now);
    ApplyListsChange(turn, job, ended);
  }
  turn.effects.push_back(SendToAgent{session, AckExit{exit.worker}});
  turn.restored.ProcessEnded(exit.worker.job, exit.worker.incarnation,
                             *turn.streams.NodeOf(session));
}

void Handle(Turn& turn, PeerStreamId session, const LogLines& log) {
  const auto& [worker, lines] = log;
  AgentHeard(turn, session);
  jobs::Job* job = turn.jobs.Find(worker.job);
  if (job == nullptr || lines.empty() || !MayBeOf(worker, *job)) return;
  if (!SpeaksFor(turn, session, worker)) return;
  for (const std::string& line : lines) {
    turn.batch.logs.push_back(
        {worker.job, ++job->log_sequence, worker.generation, worker.rank, line});
  }
  turn.jobs.MustBeStored(*job);
  turn.effects.push_back(LogsChanged{job->id});
}

void Handle(Turn& turn, PeerStreamId session, const AgentStops& stops) {
  AgentHeard(turn, session);
  const std::string* const agent = turn.streams.NodeOf(session);
  if (agent == nullptr) return;
  const std::string node = *agent;
  if (!turn.nodes.AgentStops(node, stops.reason)) return;
  turn.Say(absl::StrCat("node '", node, "': its agent is being stopped: ", stops.reason));
  PreemptNode(turn, node, WhyAgentStops(node));
  Schedule(turn);
}

void Handle(Turn& turn, PeerStreamId session, const SlotQuarantine& quarantine) {
  AgentHeard(turn, session);
  const std::string* const agent = turn.streams.NodeOf(session);
  if (agent == nullptr) return;
  const std::string node = *agent;
  const membership::Agent* known = turn.membership.agents().Find(node);
  if (known == nullptr || !HasSlot(*known, quarantine.slot)) return;
  turn.nodes.Quarantine(node, quarantine.slot, quarantine.quarantined);
  if (!quarantine.quarantined) {
    turn.Say(absl::StrCat("node '", node, "': slot ", quarantine.slot, " can be used again"));
    return Schedule(turn);
  }
  turn.Say(absl::StrCat("node '", node, "': slot ", quarantine.slot, " is not used: process ",
                        quarantine.pid, " of job '", quarantine.worker.job, "' does not end (",
                        quarantine.reason, ")"));
  if (!SpeaksFor(turn, session, quarantine.worker) ||
      turn.jobs.CurrentRank(quarantine.worker) == nullptr)
    return;
  jobs::Job* job = turn.jobs.Find(quarantine.worker.job);
  const jobs::Ended ended = jobs::OnGone(
      job, quarantine.worker.rank,
      absl::StrCat("process ", quarantine.pid, " does not end although it was killed"), turn.now);
  ApplyListsChange(turn, job, ended);
}

void Detached(Turn& turn, PeerStreamId session) {
  if (const std::string* const agent = turn.streams.NodeOf(session); agent != nullptr) {
    const std::string node = *agent;
    turn.streams.Remove(session);
    if (!turn.membership.agents().Detached(node, session)) return;
    turn.Say(absl::StrCat("node '", node, "': the agent's connection broke"));
    return Schedule(turn);
  }
  const WorkerId* const worker = turn.streams.WorkerOf(session);
  if (worker == nullptr) return;
  const WorkerId id = *worker;
  turn.streams.Remove(session);
  if (!turn.membership.WorkerDetached(id, session)) return;
  if (jobs::Job* job = turn.jobs.Find(id.job)) Changed(turn, job);
}

}  // namespace muster::cluster
