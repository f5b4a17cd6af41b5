#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// Returns the same command as `muster stop` sends.
commands::Command StopForTimeLimit() {
  return {.kind = v1::Operation::STOP, .requested_by = "time_limit"};
}

void Grant(HandlerContext& context, membership::Grace whom) {
  context.membership.Grant(whom, context.now);
  context.restored.Await(context.now + context.options.timing.Grant());
}

// Delays the end of a stop while its ranks make progress, because its last save may take long.
void LookAtStop(HandlerContext& context, jobs::Job* job) {
  if (!job->live() || !job->stop_requested() || job->ending()) {
    context.jobs.NotesOf(job->id).stop_activity.reset();
    return;
  }
  uint64_t activity = 0;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = context.membership.FindWorker(job->id, rank);
    if (worker != nullptr) activity += worker->activity + worker->step;
  }
  const std::optional<uint64_t> before =
      std::exchange(context.jobs.NotesOf(job->id).stop_activity, activity);
  if (!before.has_value() || *before == activity) return;
  jobs::OnStopProgress(job, context.options.end_timeouts, context.now);
}

}  // namespace

void Handle(HandlerContext& context, const CoordinatorPaused& away) {
  context.Log(absl::StrCat("the coordinator itself stood still for ",
                           absl::FormatDuration(away.gap), ": everybody gets a new lease"));
  Grant(context, membership::Grace::kAll);
}

void Handle(HandlerContext& context, const StoreUnavailable& away) {
  context.Log(absl::StrCat("the store could not be written for ", absl::FormatDuration(away.gap),
                           ": everybody without a stream gets a new lease"));
  Grant(context, membership::Grace::kWithoutStream);
}

void Handle(HandlerContext& context, const TimePassed&) {
  context.last_tick = context.now;
  std::vector<membership::LostAgent> lost;
  if (context.judging) lost = context.membership.agents().Expire(context.now);
  for (const auto& [agent, reason] : lost) {
    context.Log(reason);
    context.nodes.AgentGone(agent.node);
    Close(
        context, agent.stream,
        Refuse(absl::StatusCode::kDeadlineExceeded, "LEASE_OVER", reason, {{"node", agent.node}}));
    NodeLost(context, agent);
  }
  membership::Membership::Expired expired;
  if (context.judging) expired = context.membership.ExpireWorkers(context.now);
  for (const membership::Worker& worker : expired.gone) {
    jobs::Job* job = context.jobs.Find(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::RanksToEnd ended = jobs::OnLeaseOver(job, worker.id.rank, context.now);
    ApplyListsChange(context, job, ended);
  }
  for (const auto& [worker, reason, collectives, permanent] : expired.workers) {
    Close(context, worker.stream,
          Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                 absl::StrCat("this process was given up: it ", reason)));
    jobs::Job* job = context.jobs.Find(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::RanksToEnd ended =
        jobs::OnLost(job, worker.id.rank, {reason, collectives, permanent}, context.now);
    ApplyListsChange(context, job, ended);
  }
  for (jobs::Job* job : context.jobs.Open()) {
    LookAtStop(context, job);
    jobs::RanksToEnd ended = jobs::OnTick(job, context.now);
    const bool stops = jobs::TimeIsUp(*job, context.now);
    if (stops) {
      const jobs::RanksToEnd more = jobs::OnTimeUp(job, context.options.end_timeouts, context.now);
      ended.insert(ended.end(), more.begin(), more.end());
      Append(context, job, StopForTimeLimit());
    }
    if (ended.empty() && !stops) continue;
    ApplyListsChange(context, job, ended);
  }
  // While the coordinator does not listen, no node can come back.
  if (context.judging) context.restored.Tick(context.now);
  for (std::string& id : context.requests.ForgetOld(context.now)) {
    context.batch.removed_requests.push_back(std::move(id));
  }
  Schedule(context);
}

void Handle(HandlerContext& context, const JudgeLiveness& judge) {
  context.judging = judge.judging;
  if (judge.judging) Grant(context, membership::Grace::kAll);
}

void Handle(HandlerContext& context, const LeaveNode& leave) {
  context.nodes.StopAgent(leave.node, kMusterdStops);
  PreemptNode(context, leave.node, kMusterdStops);
  Schedule(context);
}

void Handle(HandlerContext& context, const InterruptNode& interrupt) {
  const std::string& node = interrupt.node;
  const std::string why = absl::StrCat("node '", node, "' is being stopped");
  for (jobs::Job* job : context.jobs.LiveOn(node)) {
    ApplyListsChange(context, job, jobs::OnInterrupted(job, why, context.now));
  }
}

}  // namespace muster::cluster
