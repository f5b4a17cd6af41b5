#include "coordinator/cluster/handlers/preemption.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/orders.h"
#include "coordinator/jobs/events.h"

namespace muster::cluster {
namespace {

jobs::Ended Preempt(Turn& turn, jobs::Job* job, const std::string& reason) {
  // Only the first notice is an event: a repeated drain, perhaps with another deadline or of
  // another node of the job, changes nothing for the job.
  const bool first = job->interruption().empty();
  const char* const from_step_zero =
      jobs::WritesCheckpoints(*job)
          ? ""
          : "; it writes no checkpoints: it starts again from step 0 on another node";
  jobs::Ended ended;
  std::string how;
  if (jobs::OnPreempted(job, reason, turn.now, &ended)) {
    how = from_step_zero;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      SendToRank(turn, *job, rank, PreemptionNotice{job->interruption()});
    }
  } else {
    how = "; it is ended at once: it had not begun to train";
  }
  // A job that is being stopped ends anyway: the preemption is no event.
  if (first && !job->interruption().empty() && !job->stop_requested()) {
    jobs::AddEvent(job, turn.now, "PREEMPTED", absl::StrCat(job->interruption(), how));
  }
  return ended;
}

}  // namespace

void PreemptNode(Turn& turn, const std::string& node, const std::string& reason) {
  EachJobOn(turn, node, [&](jobs::Job* job) { return Preempt(turn, job, reason); });
}

void EachJobOn(Turn& turn, const std::string& node,
               const std::function<jobs::Ended(jobs::Job*)>& change) {
  for (jobs::Job* job : turn.jobs.LiveOn(node)) {
    const jobs::Ended ended = change(job);
    ApplyListsChange(turn, job, ended);
  }
}

}  // namespace muster::cluster
