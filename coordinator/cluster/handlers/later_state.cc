#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/life.h"

namespace muster::cluster {

void EndAfterRestore(HandlerContext& context, jobs::Job* job, const std::string& what) {
  context.restored.KnowsMore(job->id);
  const jobs::RanksToEnd ended = jobs::OnInterrupted(
      job,
      absl::StrCat(what, " were acknowledged and are missing here: was the database restored?"),
      context.now);
  ApplyListsChange(context, job, ended);
}

void EndForLostReports(HandlerContext& context, jobs::Job* job, uint32_t rank, uint64_t newest) {
  EndAfterRestore(context, job,
                  absl::StrCat("reports ", job->ranks[rank].acked_report + 1, " to ", newest,
                               " of rank ", rank));
}

void NewerGenerationFound(HandlerContext& context, jobs::Job* job, uint64_t generation,
                          const std::string& what) {
  jobs::AddEvent(job, context.now, "NEWER_GENERATION_FOUND",
                 absl::StrCat("a process of generation ", generation, " ", what,
                              ": was the database restored?"));
  context.restored.KnowsMore(job->id);
  const jobs::RanksToEnd ended = jobs::OnNewerGeneration(job, generation, context.now);
  ApplyListsChange(context, job, ended);
}

void EndLaterProcesses(HandlerContext& context, const AgentHello& hello) {
  for (const RunningWorker& running : hello.running) {
    jobs::Job* job = context.jobs.Find(running.worker.job);
    if (job == nullptr || job->terminal() || running.worker.generation < job->generation) continue;
    // Only jobs of the database at the start can have lost generations. This object has started all
    // generations of jobs that were submitted later.
    if (!context.restored.Had(job->id)) continue;
    if (running.worker.generation - job->generation > kMostLostGenerations) continue;
    // A process with the newest known generation's number belongs to it if its incarnation is
    // known. Otherwise the process is of a generation that a restored database has lost.
    const bool known = std::any_of(
        job->ranks.begin(), job->ranks.end(),
        [&](const jobs::Rank& rank) { return rank.incarnation == running.worker.incarnation; });
    if (known && running.worker.generation == job->generation) continue;
    context.restored.LaterProcess(job->id, running.worker.incarnation, hello.node);
    NewerGenerationFound(context, job, running.worker.generation,
                         absl::StrCat("runs on node '", hello.node, "' and is ended"));
  }
}

}  // namespace muster::cluster
