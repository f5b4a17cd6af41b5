#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/cluster/state/scheduler.h"
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
void AgentProcessGone(HandlerContext& context, const std::string& node,
                      const std::string& incarnation, const std::set<std::string>& left,
                      const std::string& reason) {
  for (jobs::Job* job : context.jobs.Open()) {
    if (!job->live()) continue;
    jobs::RanksToEnd ended;
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
        context.jobs.RankChanged(job->id, rank);
        continue;
      }
      const jobs::RanksToEnd more = jobs::OnGone(job, rank, reason, context.now);
      ended.insert(ended.end(), more.begin(), more.end());
      any = true;
    }
    if (!any || job->generation != generation) continue;
    std::erase_if(ended, [&](uint32_t rank) { return job->ranks[rank].exited; });
    ApplyListsChange(context, job, ended);
  }
}

}  // namespace

absl::Status AttachAgent(HandlerContext& context, PeerStreamId stream, const AgentHello& hello) {
  RETURN_IF_ERROR(
      With(CheckProtocol(absl::StrCat("the agent of node '", hello.node, "'"), hello.protocol,
                         kAgentProtocol, "AGENT_TOO_OLD", "update the programs of the node"),
           {{"node", hello.node}}));
  RETURN_IF_ERROR(context.nodes.CheckName(hello, context.membership.agents().Find(hello.node),
                                          context.options.timing.lease));
  if (context.membership.agents().Find(hello.node) == nullptr &&
      context.membership.agents().all().size() >= context.options.limits.nodes) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_NODES",
        absl::StrCat("node '", hello.node, "': ", context.membership.agents().all().size(),
                     " nodes hold a lease, as many as allowed"),
        {{"limit", absl::StrCat(context.options.limits.nodes)}, {"node", hello.node}});
  }
  const auto attached = context.membership.agents().Attach({.node = hello.node,
                                                            .incarnation = hello.incarnation,
                                                            .host = hello.host,
                                                            .slots = hello.slots,
                                                            .gpus = hello.gpus,
                                                            .version = hello.version,
                                                            .protocol = hello.protocol},
                                                           stream, context.now);
  Close(context, attached.replaced,
        attached.new_incarnation
            ? Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                     absl::StrCat("node '", hello.node, "': a newer agent process has this name"),
                     {{"node", hello.node}})
            : Refuse(absl::StatusCode::kAborted, "NEWER_STREAM",
                     "a newer stream of this agent is attached", {{"node", hello.node}}));
  context.streams.AddAgent(stream, hello.node);
  context.batch.nodes.push_back({hello.node, hello.incarnation, hello.host, hello.slots});
  std::erase(context.batch.removed_nodes, hello.node);
  std::string offers = jobs::CountOf(hello.slots, jobs::Device::kCpu);
  if (const auto gpus = static_cast<uint32_t>(hello.gpus.size()); gpus > 0) {
    absl::StrAppend(&offers, ", ", jobs::CountOf(gpus, jobs::Device::kCuda));
  }
  context.Log(absl::StrCat("node '", hello.node, "' is attached: ", offers));
  context.effects.push_back(SendToAgent{stream, WelcomeAgent{context.options.timing}});
  NodeFound(context, hello.node);
  std::set<uint32_t> quarantined;
  // The agent may have been started again with fewer slots.
  for (const uint32_t slot : hello.quarantined_slots) {
    if (HasSlot(*context.membership.agents().Find(hello.node), slot)) quarantined.insert(slot);
  }
  context.nodes.Attached(hello, attached.new_incarnation, std::move(quarantined));
  const store::NodeMarkRow mark = context.nodes.MarkOf(hello.node);
  // The agent may have missed the beginning or the end of a drain.
  DrainAgent drain{mark.drained, "", std::nullopt};
  if (mark.drained) {
    drain.reason = mark.reason;
    drain.deadline = mark.drain_deadline;
  }
  context.effects.push_back(SendToAgent{stream, std::move(drain)});
  context.restored.NodeKnown(hello.node);
  // The hello names the processes of lost generations that still run here. They are recorded before
  // anything below starts a job, because their jobs must not start yet.
  context.restored.ProcessesEnded(hello.node);
  EndLaterProcesses(context, hello);
  std::set<std::string> running;
  for (const RunningWorker& worker : hello.running) running.insert(worker.worker.incarnation);
  AgentProcessGone(context, hello.node, hello.incarnation, running,
                   absl::StrCat("the agent of node '", hello.node,
                                "' ended, and its workers with it; a new one is attached"));
  // Signals come first: an exit code may be a consequence of another process's end by a signal.
  std::vector<WorkerExit> exits = hello.exits;
  std::stable_partition(exits.begin(), exits.end(), [](const WorkerExit& exit) {
    return exit.exit.cause == jobs::Exit::Cause::kSignal;
  });
  for (const WorkerExit& exit : exits) Handle(context, stream, exit);
  for (const RunningWorker& worker : hello.running) {
    jobs::Rank* rank = context.jobs.CurrentRank(worker.worker);
    if (rank != nullptr && SpeaksFor(context, stream, worker.worker)) {
      rank->pid = worker.pid;
      context.jobs.RankChanged(worker.worker.job, worker.worker.rank);
      // The process may still attach, or it has ended and the agent has its reports. Until then it
      // does not count as lost.
      if (rank->attached) context.membership.WorkerHeard(worker.worker, context.now);
    } else {
      SendToNode(context, hello.node, StopWorker{worker.worker, context.options.end_timeouts.kill});
    }
  }
  for (const jobs::Job* job : context.jobs.Open()) {
    if (!job->live()) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.node != hello.node || r.exited) continue;
      const bool runs = running.contains(r.incarnation);
      if (job->ending() || (r.finished && !runs)) {
        SendToNode(context, r.node, StopOf(context, *job, rank));
      } else if (!runs) {
        SendToNode(context, r.node, StartOf(*job, rank));
      }
    }
  }
  if (!hello.draining.empty()) Handle(context, stream, AgentStops{hello.draining});
  Schedule(context);
  return absl::OkStatus();
}

bool AgentHeard(HandlerContext& context, PeerStreamId stream) {
  const std::string* const node = context.streams.NodeOf(stream);
  if (node == nullptr) return false;
  context.membership.agents().Heard(*node, context.now);
  return true;
}

bool SpeaksFor(HandlerContext& context, PeerStreamId stream, const WorkerId& worker) {
  const std::string* node = context.streams.NodeOf(stream);
  if (node == nullptr) return false;
  if (context.jobs.MayBeOn(*node, worker)) return true;
  if (context.streams.FirstForeignProcess(stream)) {
    context.Log(absl::StrCat("node '", *node,
                             "': its agent speaks of a process that is not on this node (rank ",
                             worker.rank, " of generation ", worker.generation, " of job '",
                             worker.job, "'): this is ignored, and so is more of this kind"));
  }
  return false;
}

void Handle(HandlerContext& context, PeerStreamId stream, const RunningWorker& worker) {
  AgentHeard(context, stream);
  if (!SpeaksFor(context, stream, worker.worker)) return;
  jobs::Rank* rank = context.jobs.CurrentRank(worker.worker);
  if (rank == nullptr || rank->pid == worker.pid) return;
  rank->pid = worker.pid;
  context.jobs.RankChanged(worker.worker.job, worker.worker.rank);
  Changed(context, context.jobs.Find(worker.worker.job));
}

void Handle(HandlerContext& context, PeerStreamId stream, const WorkerExit& exit) {
  // The stream is being closed. The agent repeats the exit on its next stream.
  if (!AgentHeard(context, stream)) return;
  // An agent of 0.3.0 does not announce a stop that came between its hello and its welcome.
  if (exit.exit.cause == jobs::Exit::Cause::kStartError &&
      exit.exit.why == jobs::Exit::Why::kAgentStopped) {
    Handle(context, stream, AgentStops{"it accepts no more workers"});
  }
  jobs::Rank* rank =
      SpeaksFor(context, stream, exit.worker) ? context.jobs.CurrentRank(exit.worker) : nullptr;
  if (rank != nullptr) {
    if (exit.pid != 0) rank->pid = exit.pid;
    jobs::Job* job = context.jobs.Find(exit.worker.job);
    const jobs::RanksToEnd ended =
        jobs::OnExit(job, exit.worker.rank, exit.exit, context.options.end_timeouts, context.now);
    ApplyListsChange(context, job, ended);
  }
  context.effects.push_back(SendToAgent{stream, AckExit{exit.worker}});
  context.restored.ProcessEnded(exit.worker.job, exit.worker.incarnation,
                                *context.streams.NodeOf(stream));
}

void Handle(HandlerContext& context, PeerStreamId stream, const LogLines& log) {
  const auto& [worker, lines] = log;
  AgentHeard(context, stream);
  jobs::Job* job = context.jobs.Find(worker.job);
  if (job == nullptr || lines.empty() || !MayBeOf(worker, *job)) return;
  if (!SpeaksFor(context, stream, worker)) return;
  for (const std::string& line : lines) {
    context.batch.logs.push_back(
        {worker.job, ++job->log_sequence, worker.generation, worker.rank, line});
  }
  context.jobs.MustBeStored(*job);
  context.effects.push_back(LogsChanged{job->id});
}

void Handle(HandlerContext& context, PeerStreamId stream, const AgentStops& stops) {
  AgentHeard(context, stream);
  const std::string* const agent = context.streams.NodeOf(stream);
  if (agent == nullptr) return;
  const std::string node = *agent;
  if (!context.nodes.AgentStops(node, stops.reason)) return;
  context.Log(absl::StrCat("node '", node, "': its agent is being stopped: ", stops.reason));
  PreemptNode(context, node, WhyAgentStops(node));
  Schedule(context);
}

void Handle(HandlerContext& context, PeerStreamId stream, const SlotQuarantine& quarantine) {
  AgentHeard(context, stream);
  const std::string* const agent = context.streams.NodeOf(stream);
  if (agent == nullptr) return;
  const std::string node = *agent;
  const membership::Agent* known = context.membership.agents().Find(node);
  if (known == nullptr || !HasSlot(*known, quarantine.slot)) return;
  context.nodes.Quarantine(node, quarantine.slot, quarantine.quarantined);
  if (!quarantine.quarantined) {
    context.Log(absl::StrCat("node '", node, "': slot ", quarantine.slot, " can be used again"));
    return Schedule(context);
  }
  context.Log(absl::StrCat("node '", node, "': slot ", quarantine.slot, " is not used: process ",
                           quarantine.pid, " of job '", quarantine.worker.job, "' does not end (",
                           quarantine.reason, ")"));
  if (!SpeaksFor(context, stream, quarantine.worker) ||
      context.jobs.CurrentRank(quarantine.worker) == nullptr)
    return;
  jobs::Job* job = context.jobs.Find(quarantine.worker.job);
  const jobs::RanksToEnd ended =
      jobs::OnGone(job, quarantine.worker.rank,
                   absl::StrCat("process ", quarantine.pid, " does not end although it was killed"),
                   context.now);
  ApplyListsChange(context, job, ended);
}

void Detached(HandlerContext& context, PeerStreamId stream) {
  if (const std::string* const agent = context.streams.NodeOf(stream); agent != nullptr) {
    const std::string node = *agent;
    context.streams.Remove(stream);
    if (!context.membership.agents().Detached(node, stream)) return;
    context.Log(absl::StrCat("node '", node, "': the agent's connection broke"));
    return Schedule(context);
  }
  const WorkerId* const worker = context.streams.WorkerOf(stream);
  if (worker == nullptr) return;
  const WorkerId id = *worker;
  context.streams.Remove(stream);
  if (!context.membership.WorkerDetached(id, stream)) return;
  if (jobs::Job* job = context.jobs.Find(id.job)) Changed(context, job);
}

}  // namespace muster::cluster
