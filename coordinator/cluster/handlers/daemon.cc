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

void Grant(Turn& turn, membership::Grace whom) {
  turn.membership.Grant(whom, turn.now);
  turn.restored.Await(turn.now + turn.options.timing.Grant());
}

// Delays the end of a stop while its ranks make progress, because its last save may take long.
void LookAtStop(Turn& turn, jobs::Job* job) {
  if (!job->live() || !job->stop_requested() || job->ending()) {
    turn.jobs.NotesOf(job->id).stop_activity.reset();
    return;
  }
  uint64_t activity = 0;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = turn.membership.FindWorker(job->id, rank);
    if (worker != nullptr) activity += worker->activity + worker->step;
  }
  const std::optional<uint64_t> before =
      std::exchange(turn.jobs.NotesOf(job->id).stop_activity, activity);
  if (!before.has_value() || *before == activity) return;
  jobs::OnStopProgress(job, turn.options.end_timeouts, turn.now);
}

}  // namespace

void Handle(Turn& turn, const WasAway& away) {
  turn.Say(absl::StrCat("the coordinator itself stood still for ", absl::FormatDuration(away.gap),
                        ": everybody gets a new lease"));
  Grant(turn, membership::Grace::kAll);
}

void Handle(Turn& turn, const StoreWasAway& away) {
  turn.Say(absl::StrCat("the store could not be written for ", absl::FormatDuration(away.gap),
                        ": everybody without a stream gets a new lease"));
  Grant(turn, membership::Grace::kWithoutStream);
}

void Handle(Turn& turn, const TimePassed&) {
  turn.last_tick = turn.now;
  std::vector<membership::LostAgent> lost;
  if (turn.judging) lost = turn.membership.agents().Expire(turn.now);
  for (const auto& [agent, reason] : lost) {
    turn.Say(reason);
    turn.nodes.AgentGone(agent.node);
    Close(
        turn, agent.session,
        Refuse(absl::StatusCode::kDeadlineExceeded, "LEASE_OVER", reason, {{"node", agent.node}}));
    NodeLost(turn, agent);
  }
  membership::Membership::Expired expired;
  if (turn.judging) expired = turn.membership.ExpireWorkers(turn.now);
  for (const membership::Worker& worker : expired.gone) {
    jobs::Job* job = turn.jobs.Find(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::Ended ended = jobs::OnCutOff(job, worker.id.rank, turn.now);
    ApplyListsChange(turn, job, ended);
  }
  for (const auto& [worker, reason, collectives, permanent] : expired.workers) {
    Close(turn, worker.session,
          Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                 absl::StrCat("this process was given up: it ", reason)));
    jobs::Job* job = turn.jobs.Find(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::Ended ended =
        jobs::OnLost(job, worker.id.rank, {reason, collectives, permanent}, turn.now);
    ApplyListsChange(turn, job, ended);
  }
  for (jobs::Job* job : turn.jobs.Open()) {
    LookAtStop(turn, job);
    jobs::Ended ended = jobs::OnTick(job, turn.now);
    const bool stops = jobs::TimeIsUp(*job, turn.now);
    if (stops) {
      const jobs::Ended more = jobs::OnTimeUp(job, turn.options.end_timeouts, turn.now);
      ended.insert(ended.end(), more.begin(), more.end());
      Append(turn, job, StopForTimeLimit());
    }
    if (ended.empty() && !stops) continue;
    ApplyListsChange(turn, job, ended);
  }
  // While the coordinator does not listen, no node can come back.
  if (turn.judging) turn.restored.Tick(turn.now);
  for (std::string& id : turn.requests.ForgetOld(turn.now)) {
    turn.batch.removed_requests.push_back(std::move(id));
  }
  Schedule(turn);
}

void Handle(Turn& turn, const Judge& judge) {
  turn.judging = judge.judging;
  if (judge.judging) Grant(turn, membership::Grace::kAll);
}

void Handle(Turn& turn, const LeaveNode& leave) {
  turn.nodes.StopAgent(leave.node, kMusterdStops);
  PreemptNode(turn, leave.node, kMusterdStops);
  Schedule(turn);
}

void Handle(Turn& turn, const InterruptNode& interrupt) {
  const std::string& node = interrupt.node;
  const std::string why = absl::StrCat("node '", node, "' is being stopped");
  for (jobs::Job* job : turn.jobs.LiveOn(node)) {
    ApplyListsChange(turn, job, jobs::OnInterrupted(job, why, turn.now));
  }
}

}  // namespace muster::cluster
