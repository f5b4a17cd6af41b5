#include "coordinator/cluster/handlers/consequences.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/state/scheduler.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/node_health.h"
#include "coordinator/jobs/placement.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

std::string Sentence(const jobs::Job& job) {
  std::string text = absl::StrCat("job '", job.id, "'");
  if (job.generation > 0) absl::StrAppend(&text, " generation ", job.generation);
  absl::StrAppend(&text, ": ", jobs::Name(job.state()));
  if (!job.state_reason.empty()) absl::StrAppend(&text, ": ", job.state_reason);
  return text;
}

void Start(HandlerContext& context, jobs::Job* job, const std::vector<jobs::Slot>& placed) {
  std::vector<jobs::Rank> ranks;
  for (const jobs::Slot& slot : placed) {
    const membership::Agent& agent = *context.membership.agents().Find(slot.node);
    ranks.push_back({.node = slot.node,
                     .slot = slot.slot,
                     .host = agent.host,
                     .agent_incarnation = agent.incarnation,
                     .incarnation = context.options.new_incarnation()});
  }
  const uint64_t before = job->generation;
  jobs::StartGeneration(job, std::move(ranks), context.now);
  JobNotes& notes = context.jobs.NotesOf(job->id);
  // The generations between were started by a musterd whose database is lost.
  if (job->generation > before + 1) notes.known_since = job->generation;
  NotePlaces(*job, &notes);
  notes.newest_steps.clear();
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const jobs::Rank& r = job->ranks[rank];
    context.membership.ExpectWorker(job->Worker(rank), r.node, false, context.now,
                                    ProgressLimitsOf(context.options, *job));
    SendToNode(context, r.node, StartOf(*job, rank));
  }
  context.jobs.ListsChanged(*job);
  Changed(context, job);
  notes.said = job->state();
  context.Log(Sentence(*job));
}

// Records once per generation what the end of the newest generation shows about its nodes.
void JudgeNodes(HandlerContext& context, jobs::Job* job) {
  uint64_t& judged = context.jobs.NotesOf(job->id).judged;
  if (judged == job->generation) return;
  judged = job->generation;
  if (job->state() == jobs::State::kSucceeded) return NodesWork(context, *job);
  const auto failure = jobs::RootCause(job->failures);
  if (!failure.has_value() || failure->root.generation != job->generation) return;
  const jobs::FailureNote& root = failure->root;
  if (root.permanent && root.kind != jobs::FailureKind::kNodeFault) return;
  // A node is only left out if the agent process with the failed rank still runs.
  const jobs::Rank& rank = job->ranks[root.rank];
  const membership::Agent* agent = context.membership.agents().Find(root.node);
  if (agent == nullptr || agent->incarnation != rank.agent_incarnation) return;
  jobs::NodeHealth::Fault fault{
      .job = job->id,
      .reason = absl::StrCat("job '", job->id, "' generation ", job->generation, " rank ",
                             root.rank, ": ", root.reason)};
  if (root.kind == jobs::FailureKind::kNodeFault) {
    fault.kind = rank.attached ? jobs::NodeHealth::Fault::Kind::kSaidByWorker
                               : jobs::NodeHealth::Fault::Kind::kPrograms;
  }
  if (!context.nodes.Failed(root.node, std::move(fault), context.now)) {
    // The node is not left out, but this job has failed there several times. The node may be the
    // cause.
    if (context.nodes.health().FailuresOf(job->id, root.node, context.now) ==
        jobs::NodeHealth::kFaults) {
      jobs::AddEvent(job, context.now, "NODE_DOUBTED",
                     absl::StrCat("node '", root.node, "' is used only if no other node has room: ",
                                  context.nodes.health().Doubts(root.node, context.now)));
    }
    return;
  }
  const std::string said =
      absl::StrCat("node '", root.node, "' ", context.nodes.WhyClosed(root.node, context.now));
  jobs::AddEvent(job, context.now, "NODE_LEFT_OUT", said);
  context.Log(said);
}

// Starts the jobs on one kind of device.
void Schedule(HandlerContext& context, jobs::Device device) {
  for (const jobs::Decision& decision : context.scheduler().Decide(device)) {
    jobs::Job& job = *context.jobs.Find(decision.id);
    if (decision.placed.has_value()) {
      Start(context, &job, *decision.placed);
      continue;
    }
    if (job.state_reason == decision.reason) continue;
    job.state_reason = decision.reason;
    Changed(context, &job);
    context.Log(Sentence(job));
  }
}

}  // namespace

membership::ProgressLimits ProgressLimitsOf(const Options& options, const jobs::Job& job) {
  membership::ProgressLimits limits = options.timing.DefaultProgressLimits();
  if (job.plan.no_progress.has_value()) limits.no_progress = *job.plan.no_progress;
  if (job.plan.startup.has_value()) limits.startup = *job.plan.startup;
  return limits;
}

void Changed(HandlerContext& context, jobs::Job* job) {
  context.outbox.Observe(*job, context.now);
  context.jobs.Changed(job);
}

void NodesWork(HandlerContext& context, const jobs::Job& job) {
  for (const jobs::Rank& rank : job.ranks) context.nodes.Works(rank.node);
}

void ApplyJobChange(HandlerContext& context, jobs::Job* job, const jobs::RanksToEnd& ended) {
  for (const uint32_t rank : ended) {
    SendToNode(context, job->ranks[rank].node, StopOf(context, *job, rank));
  }
  if (!job->live()) JudgeNodes(context, job);
  if (jobs::HasStartedInVain(*job) && !context.scheduler().MayStartElsewhere(*job)) {
    jobs::FailToStart(job, context.now);
  }
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (job->ranks[rank].exited || !job->live()) {
      Close(context, context.membership.Forget(job->id, rank),
            Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                   "this process counts as ended"));
    } else if (job->ending() || jobs::Exits(*job, rank)) {
      context.membership.Release(job->id, rank);
    }
  }
  if (job->terminal()) {
    const bool stopped = job->state() == jobs::State::kCancelled || job->time_up();
    if (job->commands.EndAll(jobs::Name(job->state()), stopped, context.now))
      context.jobs.ListsChanged(*job);
  }
  JobNotes& notes = context.jobs.NotesOf(job->id);
  if (!job->live() || job->ending()) notes.newest_steps.clear();
  Changed(context, job);
  if (notes.said != job->state()) {
    notes.said = job->state();
    context.Log(Sentence(*job));
  }
  Schedule(context);
}

void ApplyListsChange(HandlerContext& context, jobs::Job* job, const jobs::RanksToEnd& ended) {
  context.jobs.ListsChanged(*job);
  ApplyJobChange(context, job, ended);
}

void Schedule(HandlerContext& context) {
  for (const jobs::Device device : {jobs::Device::kCpu, jobs::Device::kCuda}) {
    Schedule(context, device);
  }
}

void SendToRank(HandlerContext& context, const jobs::Job& job, uint32_t rank, WorkerOrder order) {
  const membership::Worker* worker = context.membership.FindWorker(job.id, rank);
  if (worker == nullptr || !worker->attached()) return;
  context.effects.push_back(SendToWorker{worker->stream, std::move(order)});
}

void SendToNode(HandlerContext& context, const std::string& node, AgentOrder order) {
  const membership::Agent* agent = context.membership.agents().Find(node);
  if (agent == nullptr || !agent->attached()) return;
  context.effects.push_back(SendToAgent{agent->stream, std::move(order)});
}

StopWorker StopOf(const HandlerContext& context, const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), context.options.end_timeouts.kill};
}

StartWorker StartOf(const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), job.ranks[rank].slot, job.plan.continue_when_cut_off, job.plan.threads};
}

uint64_t Append(HandlerContext& context, jobs::Job* job, commands::Command command) {
  command.create_time = context.now;
  const uint64_t number = job->commands.Append(std::move(command));
  const commands::Delivery delivery = job->commands.DeliveryOf(number);
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = context.membership.FindWorker(job->id, rank);
    if (worker == nullptr || !worker->attached()) continue;
    job->told_commands = number;
    SendToRank(context, *job, rank, delivery);
  }
  context.jobs.ListsChanged(*job);
  return number;
}

absl::Status CheckProtocol(const std::string& who, uint32_t protocol, uint32_t own,
                           const std::string& too_old, const std::string& update) {
  const bool old = IsTooOld(protocol, own);
  if (!old && !IsTooNew(protocol, own)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, old ? too_old : "PROGRAM_TOO_NEW",
                absl::StrCat(who, " speaks protocol ", protocol, "; this musterd speaks ", own,
                             old ? " and knows the one before: " : " and knows the next one: ",
                             old ? update : "update musterd first"));
}

void Close(HandlerContext& context, PeerStreamId stream, const absl::Status& why) {
  if (stream == 0) return;
  context.streams.Remove(stream);
  context.effects.push_back(CloseStream{stream, why});
}

}  // namespace muster::cluster
