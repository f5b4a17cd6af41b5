#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"

namespace muster::cluster {

void RecordCheckpoint(HandlerContext& context, jobs::Job* job, const CheckpointWritten& written) {
  if (written.best && jobs::MarkBest(job, written.path)) {
    context.jobs.ListsChanged(*job);
    return TellToRemove(context, *job);
  }
  jobs::Checkpoint checkpoint{.step = written.step,
                              .generation = job->generation,
                              .path = written.path,
                              .create_time = context.now,
                              .bytes = written.bytes,
                              .stall = written.stall,
                              .write_time = written.write_time,
                              .best = written.best};
  if (const absl::Status status = jobs::CheckPath(*job, checkpoint); !status.ok()) {
    jobs::AddEvent(job, context.now, "CHECKPOINT_REFUSED",
                   absl::StrCat("a checkpoint is not recorded: ", Message(status)), written.step);
    return;
  }
  jobs::RecordCheckpoint(job, std::move(checkpoint));
  jobs::OnCheckpoint(job, written.step);
  if (written.step > job->started_step) NodesWork(context, *job);
  context.jobs.ListsChanged(*job);
  jobs::OnSaved(job, written.step, context.now);
  jobs::OnSave(job);
  SendToRank(context, *job, 0,
             CheckpointRecorded{written.step, written.path, job->dropped_checkpoints});
}

void TellToRemove(HandlerContext& context, const jobs::Job& job) {
  const bool recorded =
      !job.checkpoints.empty() && job.checkpoints.back().generation == job.generation;
  if (!recorded && job.dropped_checkpoints.empty()) return;
  CheckpointRecorded told{.remove = job.dropped_checkpoints};
  if (recorded) {
    told.step = job.checkpoints.back().step;
    told.path = job.checkpoints.back().path;
  }
  SendToRank(context, job, 0, std::move(told));
}

void TakeFound(HandlerContext& context, jobs::Job* job, const CheckpointsFound& report) {
  std::vector<jobs::Checkpoint> adopted;
  for (const CheckpointsFound::Checkpoint& one : report.found) {
    jobs::Checkpoint checkpoint{.step = one.step,
                                .generation = one.generation,
                                .path = one.path,
                                .create_time = context.now,
                                .origin_reason = one.reason};
    absl::Status status = jobs::CheckPath(*job, checkpoint);
    if (status.ok() && one.generation >= job->generation && one.adopted) {
      status =
          absl::InvalidArgumentError(absl::StrCat(one.path, " is not of an earlier generation"));
    }
    if (!status.ok()) {
      jobs::AddEvent(job, context.now, "CHECKPOINT_REFUSED",
                     absl::StrCat("a checkpoint that was found is not accepted: ", Message(status)),
                     one.step);
      continue;
    }
    if (one.adopted) {
      jobs::AddEvent(
          job, context.now, "CHECKPOINT_ADOPTED",
          absl::StrCat("checkpoint ", one.path,
                       " was found in the job's folder, continues its training, and counts from "
                       "now on"),
          one.step);
      checkpoint.origin_reason.clear();
      adopted.push_back(std::move(checkpoint));
    } else {
      jobs::AddEvent(job, context.now, "CHECKPOINT_FOUND",
                     absl::StrCat("checkpoint ", one.path,
                                  " is kept, and the job does not continue from it: ", one.reason),
                     one.step);
      jobs::Keep(job, std::move(checkpoint));
    }
  }
  if (!adopted.empty()) jobs::Adopt(job, std::move(adopted));
  context.jobs.ListsChanged(*job);
  TellToRemove(context, *job);
}

void TakeStart(HandlerContext& context, jobs::Job* job, const SessionStarted& started) {
  job->from_scratch = false;
  if (started.total_steps > 0) job->fit_steps = started.total_steps;
  // A session that starts from another step runs the later stages again.
  if (job->stages_done_step != started.step) job->stages_done = job->stages_done_step = 0;
  for (const std::string& path : jobs::WentOnFrom(job, started.checkpoint_path)) {
    jobs::AddEvent(job, context.now, "CHECKPOINT_KEPT",
                   absl::StrCat("checkpoint ", path,
                                " could not be read; it is kept and does not count any more"));
  }
  // A restored database lacks the newest commands. Commands given after the restore have the same
  // numbers.
  for (const auto& [old_number, number] :
       job->commands.RenumberAbove(started.last_command, job->told_before, context.now)) {
    jobs::AddEvent(
        job, context.now, "OPERATION_RENUMBERED",
        absl::StrCat("operation ", old_number, " continues as operation ", number,
                     ": the checkpoint from which the job continues has other commands up to ",
                     started.last_command));
  }
  job->commands.FinishTaken(started.last_command, started.step, context.now);
  if (job->told_commands < job->commands.commands().size()) {
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      for (commands::Delivery& delivery : job->commands.After(job->told_commands)) {
        SendToRank(context, *job, rank, std::move(delivery));
      }
    }
    job->told_commands = job->commands.commands().size();
  }
  context.jobs.ListsChanged(*job);
  if (started.checkpoint_path.empty()) return;
  context.Log(absl::StrCat("job '", job->id, "' generation ", job->generation, " continues from ",
                           started.checkpoint_path));
}

}  // namespace muster::cluster
