// Events of a job's checkpoint folder: checkpoints that are written, found or removed there, and
// the checkpoint from which a generation starts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/saves.h"

namespace muster::cluster {

void Cluster::RecordCheckpoint(jobs::Job* job, const CheckpointWritten& written, absl::Time now) {
  if (written.best && jobs::MarkBest(job, written.path)) {
    ListsChanged(job);
    return TellToRemove(*job);
  }
  jobs::Checkpoint checkpoint{.step = written.step,
                              .generation = job->generation,
                              .path = written.path,
                              .create_time = now,
                              .bytes = written.bytes,
                              .stall = written.stall,
                              .write_time = written.write_time,
                              .best = written.best};
  if (const absl::Status status = jobs::CheckPath(*job, checkpoint); !status.ok()) {
    jobs::AddEvent(job, now, "CHECKPOINT_REFUSED",
                   absl::StrCat("a checkpoint is not recorded: ", Message(status)), written.step);
    return;
  }
  jobs::RecordCheckpoint(job, std::move(checkpoint));
  jobs::OnCheckpoint(job, written.step);
  if (written.step > job->started_step) NodesWork(*job);
  ListsChanged(job);
  jobs::OnSaved(job, written.step, now);
  jobs::OnSave(job);
  SendToRank(*job, 0, CheckpointRecorded{written.step, written.path, job->dropped_checkpoints});
}

void Cluster::TellToRemove(const jobs::Job& job) {
  const bool recorded =
      !job.checkpoints.empty() && job.checkpoints.back().generation == job.generation;
  if (!recorded && job.dropped_checkpoints.empty()) return;
  CheckpointRecorded told{.remove = job.dropped_checkpoints};
  if (recorded) {
    told.step = job.checkpoints.back().step;
    told.path = job.checkpoints.back().path;
  }
  SendToRank(job, 0, std::move(told));
}

void Cluster::TakeFound(jobs::Job* job, const CheckpointsFound& report, absl::Time now) {
  std::vector<jobs::Checkpoint> adopted;
  for (const CheckpointsFound::One& one : report.found) {
    jobs::Checkpoint checkpoint{.step = one.step,
                                .generation = one.generation,
                                .path = one.path,
                                .create_time = now,
                                .origin_reason = one.reason};
    absl::Status status = jobs::CheckPath(*job, checkpoint);
    if (status.ok() && one.generation >= job->generation && one.adopted) {
      status =
          absl::InvalidArgumentError(absl::StrCat(one.path, " is not of an earlier generation"));
    }
    if (!status.ok()) {
      jobs::AddEvent(job, now, "CHECKPOINT_REFUSED",
                     absl::StrCat("a checkpoint that was found is not accepted: ", Message(status)),
                     one.step);
      continue;
    }
    if (one.adopted) {
      jobs::AddEvent(
          job, now, "CHECKPOINT_ADOPTED",
          absl::StrCat("checkpoint ", one.path,
                       " was found in the job's folder, continues its training, and counts from "
                       "now on"),
          one.step);
      checkpoint.origin_reason.clear();
      adopted.push_back(std::move(checkpoint));
    } else {
      jobs::AddEvent(job, now, "CHECKPOINT_FOUND",
                     absl::StrCat("checkpoint ", one.path,
                                  " is kept, and the job does not continue from it: ", one.reason),
                     one.step);
      jobs::Keep(job, std::move(checkpoint));
    }
  }
  if (!adopted.empty()) jobs::Adopt(job, std::move(adopted));
  ListsChanged(job);
  TellToRemove(*job);
}

void Cluster::TakeStart(jobs::Job* job, const SessionStarted& started, absl::Time now) {
  job->from_scratch = false;
  if (started.total_steps > 0) job->fit_steps = started.total_steps;
  // From another step the session runs again what follows it.
  if (job->stages_done_step != started.step) job->stages_done = job->stages_done_step = 0;
  for (const std::string& path : jobs::WentOnFrom(job, started.checkpoint_path)) {
    jobs::AddEvent(job, now, "CHECKPOINT_KEPT",
                   absl::StrCat("checkpoint ", path,
                                " could not be read; it is kept and does not count any more"));
  }
  // A restored database lacks the newest commands, and the commands that were given since then have
  // the same numbers.
  for (const auto& [old_number, number] :
       job->commands.RenumberAbove(started.last_command, job->told_before, now)) {
    jobs::AddEvent(
        job, now, "OPERATION_RENUMBERED",
        absl::StrCat("operation ", old_number, " continues as operation ", number,
                     ": the checkpoint from which the job continues has other commands up to ",
                     started.last_command));
  }
  job->commands.FinishTaken(started.last_command, started.step, now);
  if (job->told_commands < job->commands.commands().size()) {
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      for (commands::Delivery& delivery : job->commands.After(job->told_commands)) {
        SendToRank(*job, rank, std::move(delivery));
      }
    }
    job->told_commands = job->commands.commands().size();
  }
  ListsChanged(job);
  if (started.checkpoint_path.empty()) return;
  effects_.push_back(Say{absl::StrCat("job '", job->id, "' generation ", job->generation,
                                      " continues from ", started.checkpoint_path)});
}

absl::StatusOr<uint64_t> Cluster::ResumeHalted(jobs::Job* job, const CommandRequest& request,
                                               absl::Time now) {
  jobs::DecideStart(job, request.from_scratch, request.from);
  jobs::Resume(job);
  // The job has no process that could carry the command out: it is done at once.
  Append(job, request.command, now);
  const uint64_t number = job->commands.commands().size();
  job->commands.Applied(number, job->step);
  job->commands.Finished(number, {.time = now});
  Remember({.request_id = request.request_id,
            .fingerprint = request.fingerprint,
            .job_id = request.job_id,
            .answer = absl::StrCat(number)});
  ListsChanged(job);
  ApplyJobChange(job, {}, now);
  return number;
}

void Cluster::EndLaterProcesses(const AgentHello& hello, absl::Time now) {
  for (const RunningWorker& running : hello.running) {
    jobs::Job* job = FindJob(running.worker.job);
    if (job == nullptr || job->terminal() || running.worker.generation < job->generation) continue;
    // Only a database can have been restored: of a job that was submitted since, this object has
    // started all generations.
    if (!restored_.Had(job->id)) continue;
    if (running.worker.generation - job->generation > kMostLostGenerations) continue;
    // A process with the number of the newest known generation belongs to it if its incarnation is
    // known. Otherwise it is of a generation that a restored database has lost.
    const bool known = std::any_of(
        job->ranks.begin(), job->ranks.end(),
        [&](const jobs::Rank& rank) { return rank.incarnation == running.worker.incarnation; });
    if (known && running.worker.generation == job->generation) continue;
    restored_.LaterProcess(job->id, running.worker.incarnation, hello.node);
    NewerGenerationFound(job, running.worker.generation,
                         absl::StrCat("runs on node '", hello.node, "' and is ended"), now);
  }
}

void Cluster::NewerGenerationFound(jobs::Job* job, uint64_t generation, const std::string& what,
                                   absl::Time now) {
  jobs::AddEvent(job, now, "NEWER_GENERATION_FOUND",
                 absl::StrCat("a process of generation ", generation, " ", what,
                              ": was the database restored?"));
  restored_.KnowsMore(job->id);
  const jobs::Ended ended = jobs::OnNewerGeneration(job, generation, now);
  ListsChanged(job);
  ApplyJobChange(job, ended, now);
}

}  // namespace muster::cluster
