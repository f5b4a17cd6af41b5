#include "coordinator/cluster/handlers/consequences.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/parts/line.h"
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

void Start(Turn& turn, jobs::Job* job, const std::vector<jobs::Slot>& placed) {
  std::vector<jobs::Rank> ranks;
  for (const jobs::Slot& slot : placed) {
    const membership::Agent& agent = *turn.membership.agents().Find(slot.node);
    ranks.push_back({.node = slot.node,
                     .slot = slot.slot,
                     .host = agent.host,
                     .agent_incarnation = agent.incarnation,
                     .incarnation = turn.options.new_incarnation()});
  }
  const uint64_t before = job->generation;
  jobs::StartGeneration(job, std::move(ranks), turn.now);
  JobNotes& notes = turn.jobs.NotesOf(job->id);
  // The generations between were started by a musterd whose database is lost.
  if (job->generation > before + 1) notes.known_since = job->generation;
  NotePlaces(*job, &notes);
  notes.newest_steps.clear();
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const jobs::Rank& r = job->ranks[rank];
    turn.membership.ExpectWorker(job->Worker(rank), r.node, false, turn.now,
                                 ProgressLimitsOf(turn.options, *job));
    SendToNode(turn, r.node, StartOf(*job, rank));
  }
  turn.jobs.ListsChanged(*job);
  Changed(turn, job);
  notes.said = job->state();
  turn.Say(Sentence(*job));
}

// Records once per generation what the end of the newest generation shows about its nodes.
void JudgeNodes(Turn& turn, jobs::Job* job) {
  uint64_t& judged = turn.jobs.NotesOf(job->id).judged;
  if (judged == job->generation) return;
  judged = job->generation;
  if (job->state() == jobs::State::kSucceeded) return NodesWork(turn, *job);
  const auto failure = jobs::RootCause(job->failures);
  if (!failure.has_value() || failure->root.generation != job->generation) return;
  const jobs::FailureNote& root = failure->root;
  if (root.permanent && root.kind != jobs::FailureKind::kNodeFault) return;
  // A node is only left out if the agent process with the failed rank still runs.
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
    // The node is not left out, but this job has failed there several times. The node may be the
    // cause.
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

// Starts the jobs on one kind of device.
void Schedule(Turn& turn, jobs::Device device) {
  for (const jobs::Decision& decision : turn.line().Decide(device)) {
    jobs::Job& job = *turn.jobs.Find(decision.id);
    if (decision.placed.has_value()) {
      Start(turn, &job, *decision.placed);
      continue;
    }
    if (job.state_reason == decision.reason) continue;
    job.state_reason = decision.reason;
    Changed(turn, &job);
    turn.Say(Sentence(job));
  }
}

}  // namespace

membership::ProgressLimits ProgressLimitsOf(const Options& options, const jobs::Job& job) {
  membership::ProgressLimits limits = options.timing.DefaultProgressLimits();
  if (job.plan.no_progress.has_value()) limits.no_progress = *job.plan.no_progress;
  if (job.plan.startup.has_value()) limits.startup = *job.plan.startup;
  return limits;
}

void Changed(Turn& turn, jobs::Job* job) {
  turn.outbox.Observe(*job, turn.now);
  turn.jobs.Changed(job);
}

void NodesWork(Turn& turn, const jobs::Job& job) {
  for (const jobs::Rank& rank : job.ranks) turn.nodes.Works(rank.node);
}

void ApplyJobChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended) {
  for (const uint32_t rank : ended) {
    SendToNode(turn, job->ranks[rank].node, StopOf(turn, *job, rank));
  }
  if (!job->live()) JudgeNodes(turn, job);
  if (jobs::HasStartedInVain(*job) && !turn.line().MayStartElsewhere(*job)) {
    jobs::FailToStart(job, turn.now);
  }
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (job->ranks[rank].exited || !job->live()) {
      Close(turn, turn.membership.Forget(job->id, rank),
            Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                   "this process counts as ended"));
    } else if (job->ending() || jobs::Exits(*job, rank)) {
      turn.membership.Release(job->id, rank);
    }
  }
  if (job->terminal()) {
    const bool stopped = job->state() == jobs::State::kCancelled || job->time_up();
    if (job->commands.EndAll(jobs::Name(job->state()), stopped, turn.now))
      turn.jobs.ListsChanged(*job);
  }
  JobNotes& notes = turn.jobs.NotesOf(job->id);
  if (!job->live() || job->ending()) notes.newest_steps.clear();
  Changed(turn, job);
  if (notes.said != job->state()) {
    notes.said = job->state();
    turn.Say(Sentence(*job));
  }
  Schedule(turn);
}

void ApplyListsChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended) {
  turn.jobs.ListsChanged(*job);
  ApplyJobChange(turn, job, ended);
}

void Schedule(Turn& turn) {
  for (const jobs::Device device : {jobs::Device::kCpu, jobs::Device::kCuda}) {
    Schedule(turn, device);
  }
}

void SendToRank(Turn& turn, const jobs::Job& job, uint32_t rank, WorkerOrder order) {
  const membership::Worker* worker = turn.membership.FindWorker(job.id, rank);
  if (worker == nullptr || !worker->attached()) return;
  turn.effects.push_back(SendToWorker{worker->session, std::move(order)});
}

void SendToNode(Turn& turn, const std::string& node, AgentOrder order) {
  const membership::Agent* agent = turn.membership.agents().Find(node);
  if (agent == nullptr || !agent->attached()) return;
  turn.effects.push_back(SendToAgent{agent->session, std::move(order)});
}

StopWorker StopOf(const Turn& turn, const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), turn.options.end_timeouts.kill};
}

StartWorker StartOf(const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), job.ranks[rank].slot, job.plan.continue_when_cut_off, job.plan.threads};
}

uint64_t Append(Turn& turn, jobs::Job* job, commands::Command command) {
  command.create_time = turn.now;
  const uint64_t number = job->commands.Append(std::move(command));
  const commands::Delivery delivery = job->commands.DeliveryOf(number);
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = turn.membership.FindWorker(job->id, rank);
    if (worker == nullptr || !worker->attached()) continue;
    job->told_commands = number;
    SendToRank(turn, *job, rank, delivery);
  }
  turn.jobs.ListsChanged(*job);
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

void Close(Turn& turn, PeerStreamId session, const absl::Status& why) {
  if (session == 0) return;
  turn.streams.Remove(session);
  turn.effects.push_back(CloseStream{session, why});
}

}  // namespace muster::cluster
