// What follows from the time alone: processes that count as lost, jobs whose time limit is reached,
// and events after which all leases are renewed.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// The same command as that of `muster stop`.
commands::Command StopForTimeLimit() {
  return {.kind = v1::Operation::STOP, .requested_by = "time_limit"};
}

}  // namespace

void Cluster::WasAway(absl::Duration gap, absl::Time now) {
  effects_.push_back(Say{absl::StrCat("the coordinator itself stood still for ",
                                      absl::FormatDuration(gap), ": everybody gets a new lease")});
  GrantFreshGrace(now);
}

void Cluster::StoreWasAway(absl::Duration gap, absl::Time now) {
  effects_.push_back(
      Say{absl::StrCat("the store could not be written for ", absl::FormatDuration(gap),
                       ": everybody without a stream gets a new lease")});
  membership_.GrantGraceToDetached(now);
  restored_.Await(now + options_.timing.Grant());
}

void Cluster::GrantFreshGrace(absl::Time now) {
  membership_.GrantFreshGrace(now);
  restored_.Await(now + options_.timing.Grant());
}

void Cluster::Tick(absl::Time now) {
  last_tick_ = now;
  std::vector<membership::Membership::LostAgent> lost;
  if (judging_) lost = membership_.ExpireAgents(now);
  for (const auto& [agent, reason] : lost) {
    effects_.push_back(Say{reason});
    nodes_.AgentGone(agent.node);
    Close(agent.session, Refuse(absl::StatusCode::kDeadlineExceeded, "LEASE_OVER", reason,
                                {{"node", agent.node}}));
    NodeLost(agent, now);
  }
  membership::Membership::Expired expired;
  if (judging_) expired = membership_.ExpireWorkers(now);
  for (const membership::Worker& worker : expired.gone) {
    jobs::Job* job = FindJob(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::Ended ended = jobs::OnCutOff(job, worker.id.rank, now);
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
  for (const auto& [worker, reason, collectives, permanent] : expired.workers) {
    Close(worker.session, Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                                 absl::StrCat("this process was given up: it ", reason)));
    jobs::Job* job = FindJob(worker.id.job);
    if (job == nullptr || job->generation != worker.id.generation) continue;
    const jobs::Ended ended =
        jobs::OnLost(job, worker.id.rank, {reason, collectives, permanent}, now);
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
  for (jobs::Job* job : jobs_.Open()) {
    LookAtStop(job, now);
    jobs::Ended ended = jobs::OnTick(job, now);
    const bool stops = jobs::TimeIsUp(*job, now);
    if (stops) {
      const jobs::Ended more = jobs::OnTimeUp(job, options_.end_timeouts, now);
      ended.insert(ended.end(), more.begin(), more.end());
      Append(job, StopForTimeLimit(), now);
    }
    if (ended.empty() && !stops) continue;
    ListsChanged(job);
    ApplyJobChange(job, ended, now);
  }
  // While the coordinator does not listen, no node can come back.
  if (judging_) restored_.Tick(now);
  for (std::string& id : requests_.ForgetOld(now)) {
    batch_.removed_requests.push_back(std::move(id));
  }
  Schedule(now);
}

void Cluster::Judge(bool judging, absl::Time now) {
  judging_ = judging;
  if (judging) GrantFreshGrace(now);
}

void Cluster::LookAtStop(jobs::Job* job, absl::Time now) {
  if (!job->live || !job->stop_requested || job->ending) {
    jobs_.NotesOf(job->id).stop_activity.reset();
    return;
  }
  uint64_t activity = 0;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = membership_.FindWorker(job->id, rank);
    if (worker != nullptr) activity += worker->activity + worker->step;
  }
  const std::optional<uint64_t> before =
      std::exchange(jobs_.NotesOf(job->id).stop_activity, activity);
  if (!before.has_value() || *before == activity) return;
  jobs::OnStopProgress(job, options_.end_timeouts, now);
}

}  // namespace muster::cluster
