#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/version/protocol.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/settings.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {

absl::Status AttachWorker(HandlerContext& context, PeerStreamId stream, const WorkerHello& hello) {
  const WorkerId& id = hello.worker;
  jobs::Job* job = context.jobs.Find(id.job);
  if (job == nullptr) return NoSuchJob(id.job);
  if (context.options.planted_fault == PlantedFault::kUnfencedCommit &&
      id.generation < job->generation) {
    context.streams.AddWorker(stream, id);
    context.effects.push_back(SendToWorker{stream, WelcomeWorker{}});
    return absl::OkStatus();
  }
  if (job->terminal() || id.generation != job->generation) {
    // A process that started after its agent attached may not be known from the agent's hello.
    if (!job->terminal() &&
        id.generation > std::max(job->generation, job->newest_generation_seen) &&
        id.generation - job->generation <= kMostLostGenerations) {
      NewerGenerationFound(context, job, id.generation, "tried to attach and is refused");
    }
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "STALE_GENERATION",
        absl::StrCat("job '", id.job, "' is ", jobs::Name(job->state()), " in generation ",
                     job->generation, "; this process belongs to generation ", id.generation));
  }
  RETURN_IF_ERROR(CheckProtocol("this process", hello.protocol, kWorkerProtocol, "WORKER_TOO_OLD",
                                "update the node's programs"));
  const uint32_t needed = jobs::LearningRateSince(*job) > 0 ? kWorkerProtocol : 0;
  if (hello.protocol <
      std::max({needed, job->plan.worker_protocol, job->commands.SinceProtocol()})) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "WORKER_TOO_OLD",
                  "this process is of an older program, which does not know all settings and "
                  "commands of the job; update the programs of its node");
  }
  ASSIGN_OR_RETURN(const PeerStreamId replaced,
                   context.membership.AttachWorker(id, stream, context.now, hello.protocol));
  Close(context, replaced,
        Refuse(absl::StatusCode::kAborted, "NEWER_STREAM",
               "a newer stream of this process is attached", {{"job", id.job}}));
  context.streams.AddWorker(stream, id);

  jobs::Rank& rank = job->ranks[id.rank];
  if (rank.pid != hello.pid || !rank.attached) {
    rank.pid = hello.pid;
    jobs::OnAttached(job, id.rank);
    context.jobs.RankChanged(job->id, id.rank);
  }
  context.effects.push_back(
      SendToWorker{stream, WelcomeWorker{.spec = job->spec,
                                         .job_create_time = job->create_time,
                                         .timing = context.options.timing,
                                         .progress_limits = ProgressLimitsOf(context.options, *job),
                                         .checkpoints = jobs::Usable(*job),
                                         .known_checkpoints = jobs::NotUsable(*job),
                                         .from_scratch = job->from_scratch,
                                         .start_from = job->start_from,
                                         .learning_rate_since = jobs::LearningRateSince(*job),
                                         .stages_done = job->stages_done,
                                         .stages_done_step = job->stages_done_step,
                                         .acked_report = rank.acked_report,
                                         .rendezvous = job->alive()->rendezvous,
                                         .host = rank.host,
                                         .node = rank.node,
                                         .newest_command = job->commands.newest()}});
  job->told_commands = job->commands.newest();
  for (commands::Delivery& delivery : job->commands.After(hello.newest_command)) {
    context.effects.push_back(SendToWorker{stream, std::move(delivery)});
  }
  // The process, or the rank 0 before it, may have missed these orders when its stream broke.
  if (id.rank == 0) TellToRemove(context, *job);
  if (const std::string& path = job->alive()->export_granted; id.rank == 0 && !path.empty()) {
    context.effects.push_back(SendToWorker{stream, ExportGranted{path}});
  }
  if (!job->ending() && !job->interruption().empty()) {
    context.effects.push_back(SendToWorker{stream, PreemptionNotice{job->interruption()}});
  }
  Changed(context, job);
  // A worker that attaches for the first time since this musterd started may have commands from an
  // earlier musterd. After a restore of the database, newer commands may have the same numbers. So
  // only commands that were known at the start count.
  const uint64_t told =
      context.restored.Attached(job->id, id.incarnation).value_or(job->commands.newest());
  if (hello.newest_command > told) {
    EndAfterRestore(context, job,
                    absl::StrCat("commands ", told + 1, " to ", hello.newest_command));
  } else if (hello.acked_report > rank.acked_report) {
    // The gap is also checked here, because a paused worker may send no further report.
    EndForLostReports(context, job, id.rank, hello.acked_report);
  }
  return absl::OkStatus();
}

bool WorkerBeat(HandlerContext& context, PeerStreamId stream, const Heartbeat& heartbeat) {
  const WorkerId* const worker = context.streams.WorkerOf(stream);
  if (worker == nullptr) return false;
  const WorkerId& id = *worker;
  context.membership.WorkerMemory(id, heartbeat.memory);
  context.membership.WorkerWrites(id, heartbeat.writing);
  const bool moved =
      context.membership.WorkerProgressed(id, heartbeat.step, heartbeat.progress,
                                          heartbeat.activity, heartbeat.collectives, context.now);
  jobs::Rank* rank = context.jobs.CurrentRank(id);
  jobs::Job* job = context.jobs.Find(id.job);
  if (rank == nullptr) return true;
  const bool troubled = jobs::OnTrouble(job, id.rank, heartbeat.trouble);
  if (troubled && !heartbeat.trouble.empty()) {
    context.Log(absl::StrCat("job '", job->id, "' rank ", id.rank, " on node '", rank->node, "' ",
                             heartbeat.trouble));
  }
  if (!moved && !troubled) return true;
  rank->step = std::max(rank->step, heartbeat.step);
  if (id.rank == 0 && rank->session_started && !rank->finished) {
    job->step = std::max(job->step, heartbeat.step);
    if (!heartbeat.stage.empty()) job->stage = heartbeat.stage;
  }
  // Watchers see the change, which needs no write of its own. A commit may be in progress: a
  // version is only shown up to the ceiling that this commit or an earlier commit stores.
  if (context.jobs.ShowsMore(job)) context.effects.push_back(JobChanged{job->id});
  return true;
}

}  // namespace muster::cluster
