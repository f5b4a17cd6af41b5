#include "coordinator/cluster/cluster.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/start_failures.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

std::string Sentence(const jobs::Job& job) {
  std::string text = absl::StrCat("job '", job.id, "'");
  if (job.generation > 0) absl::StrAppend(&text, " generation ", job.generation);
  absl::StrAppend(&text, ": ", jobs::Name(job.state));
  if (!job.state_reason.empty()) absl::StrAppend(&text, ": ", job.state_reason);
  return text;
}

}  // namespace

Cluster::Cluster(const Options& options, const store::Image& image, absl::Time now)
    : options_(options),
      membership_(options.timing),
      requests_(options.limits.request_ids, image.requests),
      nodes_(image.node_marks),
      restored_(now + options.timing.Grant()),
      last_tick_(now),
      jobs_(image.last_number),
      outbox_(options.webhooks, image.deliveries) {
  for (const store::NodeRow& row : image.nodes) {
    restored_.HadNode(row.node);
    membership_.ExpectAgent(
        {.node = row.node, .incarnation = row.incarnation, .host = row.host, .slots = row.slots},
        now);
  }
  for (const jobs::Job& stored : image.jobs) {
    jobs::Job& job = *jobs_.Load(stored);
    JobNotes& notes = jobs_.NotesOf(stored.id);
    outbox_.Know(stored);
    jobs::OnLoaded(&job, options_.end_timeouts, now);
    if (!job.live) notes.judged = job.generation;
    notes.said = job.state;
    restored_.HadJob(job.id, job.live ? std::optional(job.commands.newest()) : std::nullopt);
    if (!job.live) continue;
    for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
      const jobs::Rank& r = job.ranks[rank];
      if (r.exited) continue;
      membership_.ExpectWorker(job.Worker(rank), r.node, r.session_started, now,
                               ProgressLimitsOf(job));
      if (job.ending || jobs::Exits(job, rank)) membership_.Release(job.id, rank);
      if (membership_.FindAgent(r.node) == nullptr) {
        membership_.ExpectAgent(
            {.node = r.node, .incarnation = r.agent_incarnation, .host = r.host}, now);
      }
    }
  }
}

membership::ProgressLimits Cluster::ProgressLimitsOf(const jobs::Job& job) const {
  membership::ProgressLimits limits = options_.timing.DefaultProgressLimits();
  if (job.plan.no_progress.has_value()) limits.no_progress = *job.plan.no_progress;
  if (job.plan.startup.has_value()) limits.startup = *job.plan.startup;
  return limits;
}

std::map<std::string, std::vector<uint32_t>> Cluster::RanksOn(const std::string& node) const {
  std::map<std::string, std::vector<uint32_t>> ranks_of;
  for (const jobs::Job* job : jobs_.Open()) {
    if (!job->live) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.node == node && !r.exited) ranks_of[job->id].push_back(rank);
    }
  }
  return ranks_of;
}

// ---- Consequences.

void Cluster::Changed(jobs::Job* job, absl::Time now) {
  outbox_.Observe(*job, now);
  jobs_.Changed(job);
}

void Cluster::ListsChanged(jobs::Job* job) { jobs_.ListsChanged(*job); }

void Cluster::ApplyJobChange(jobs::Job* job, const jobs::Ended& ended, absl::Time now) {
  EndRanks(*job, ended);
  if (!job->live) JudgeNodes(job, now);
  if (jobs::HasStartedInVain(*job) && !LineAt(now).MayStartElsewhere(*job)) {
    jobs::FailToStart(job, now);
  }
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (job->ranks[rank].exited || !job->live) {
      Close(membership_.Forget(job->id, rank),
            Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                   "this process counts as ended"));
    } else if (job->ending || jobs::Exits(*job, rank)) {
      membership_.Release(job->id, rank);
    }
  }
  if (job->terminal()) {
    const bool stopped = job->state == jobs::State::kCancelled || job->time_up;
    if (job->commands.EndAll(jobs::Name(job->state), stopped, now)) ListsChanged(job);
  }
  JobNotes& notes = jobs_.NotesOf(job->id);
  if (!job->live || job->ending) notes.newest_steps.clear();
  Changed(job, now);
  if (notes.said != job->state) {
    notes.said = job->state;
    effects_.push_back(Say{Sentence(*job)});
  }
  Schedule(now);
}

void Cluster::EndRanks(const jobs::Job& job, const jobs::Ended& ended) {
  for (uint32_t rank : ended) {
    SendToNode(job.ranks[rank].node, StopWorker{job.Worker(rank), options_.end_timeouts.kill});
  }
}

void Cluster::SendToRank(const jobs::Job& job, uint32_t rank, WorkerOrder order) {
  const membership::Worker* worker = membership_.FindWorker(job.id, rank);
  if (worker == nullptr || !worker->attached()) return;
  effects_.push_back(SendToWorker{worker->session, std::move(order)});
}

void Cluster::SendToNode(const std::string& node, AgentOrder order) {
  const membership::Agent* agent = membership_.FindAgent(node);
  if (agent == nullptr || !agent->attached()) return;
  effects_.push_back(SendToAgent{agent->session, std::move(order)});
}

void Cluster::Close(PeerStreamId session, const absl::Status& why) {
  if (session == 0) return;
  streams_.Remove(session);
  effects_.push_back(CloseStream{session, why});
}

void Cluster::Detached(PeerStreamId session, absl::Time now) {
  if (const std::string* const agent = streams_.NodeOf(session); agent != nullptr) {
    const std::string node = *agent;
    streams_.Remove(session);
    if (!membership_.AgentDetached(node, session)) return;
    effects_.push_back(Say{absl::StrCat("node '", node, "': the agent's connection broke")});
    return Schedule(now);
  }
  const WorkerId* const worker = streams_.WorkerOf(session);
  if (worker == nullptr) return;
  const WorkerId id = *worker;
  streams_.Remove(session);
  if (!membership_.WorkerDetached(id, session)) return;
  if (jobs::Job* job = FindJob(id.job)) Changed(job, now);
}

void Cluster::Schedule(absl::Time now) {
  for (const jobs::Device device : {jobs::Device::kCpu, jobs::Device::kCuda}) {
    Schedule(device, now);
  }
}

void Cluster::Schedule(jobs::Device device, absl::Time now) {
  for (const jobs::Decision& decision : LineAt(now).Decide(device)) {
    jobs::Job& job = *jobs_.Find(decision.id);
    if (decision.placed.has_value()) {
      Start(&job, *decision.placed, now);
      continue;
    }
    if (job.state_reason == decision.reason) continue;
    job.state_reason = decision.reason;
    Changed(&job, now);
    effects_.push_back(Say{Sentence(job)});
  }
}

StartWorker Cluster::StartOf(const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), job.ranks[rank].slot, job.plan.continue_when_cut_off, job.plan.threads};
}

void Cluster::Start(jobs::Job* job, const std::vector<jobs::Slot>& placed, absl::Time now) {
  std::vector<jobs::Rank> ranks;
  for (const jobs::Slot& slot : placed) {
    const membership::Agent& agent = *membership_.FindAgent(slot.node);
    ranks.push_back({.node = slot.node,
                     .slot = slot.slot,
                     .host = agent.host,
                     .agent_incarnation = agent.incarnation,
                     .incarnation = options_.new_incarnation()});
  }
  const uint64_t before = job->generation;
  jobs::StartGeneration(job, std::move(ranks), now);
  JobNotes& notes = jobs_.NotesOf(job->id);
  // The generations between were started by a musterd whose database is lost.
  if (job->generation > before + 1) notes.known_since = job->generation;
  NotePlaces(*job, &notes);
  notes.newest_steps.clear();
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const jobs::Rank& r = job->ranks[rank];
    membership_.ExpectWorker(job->Worker(rank), r.node, false, now, ProgressLimitsOf(*job));
    SendToNode(r.node, StartOf(*job, rank));
  }
  ListsChanged(job);
  Changed(job, now);
  notes.said = job->state;
  effects_.push_back(Say{Sentence(*job)});
}

// ---- What came of it.

void Cluster::Settled(const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) outbox_.Settle(number);
}

store::Batch Cluster::TakeBatch() {
  Jobs::Changes jobs = jobs_.TakeChanges();
  batch_.jobs = std::move(jobs.rows);
  for (store::EventRow& row : jobs.events) {
    effects_.push_back(Say{absl::StrCat("job '", row.job_id, "': ", row.event.message)});
    batch_.events.push_back(std::move(row));
  }
  for (std::string& id : jobs.changed) effects_.push_back(JobChanged{std::move(id)});
  Nodes::Changes nodes = nodes_.TakeChanges(
      options_.limits.node_marks,
      [this](const std::string& node) { return membership_.FindAgent(node) != nullptr; });
  batch_.node_marks = std::move(nodes.marks);
  batch_.removed_node_marks = std::move(nodes.removed);
  webhook::Outbox::Changes outbox = outbox_.TakeChanges();
  batch_.deliveries = std::move(outbox.added);
  batch_.removed_deliveries = std::move(outbox.removed);
  for (store::DeliveryRow& message : outbox.send) effects_.push_back(Deliver{std::move(message)});
  for (const auto& [receiver, number] : outbox.withdrawn) {
    effects_.push_back(Withdraw{receiver, number});
  }
  for (std::string& text : outbox.say) effects_.push_back(Say{std::move(text)});
  if (options_.planted_fault == PlantedFault::kLatePersist) std::swap(batch_, late_batch_);
  return std::exchange(batch_, {});
}

std::vector<Effect> Cluster::TakeEffects() { return std::exchange(effects_, {}); }

const std::deque<std::string>& Cluster::NewestSteps(const std::string& job_id) const {
  static const auto* const kNone = new std::deque<std::string>();
  return jobs_.Find(job_id) == nullptr ? *kNone : jobs_.NotesOf(job_id).newest_steps;
}

}  // namespace muster::cluster
