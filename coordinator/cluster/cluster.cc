#include "coordinator/cluster/cluster.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/life.h"

namespace muster::cluster {

Cluster::Cluster(const Options& options, const store::Image& image, absl::Time now)
    : turn_(options, image, now) {
  Turn& turn = At(now);
  for (const store::NodeRow& row : image.nodes) {
    turn.restored.HadNode(row.node);
    turn.membership.agents().Expect(
        {.node = row.node, .incarnation = row.incarnation, .host = row.host, .slots = row.slots},
        turn.now);
  }
  for (const jobs::Job& stored : image.jobs) {
    jobs::Job& job = *turn.jobs.Load(stored);
    JobNotes& notes = turn.jobs.NotesOf(stored.id);
    turn.outbox.Know(stored);
    jobs::OnLoaded(&job, turn.options.end_timeouts, turn.now);
    if (!job.live()) notes.judged = job.generation;
    notes.said = job.state();
    turn.restored.HadJob(job.id, job.live() ? std::optional(job.commands.newest()) : std::nullopt);
    if (!job.live()) continue;
    for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
      const jobs::Rank& r = job.ranks[rank];
      if (r.exited) continue;
      turn.membership.ExpectWorker(job.Worker(rank), r.node, r.session_started, turn.now,
                                   ProgressLimitsOf(turn.options, job));
      if (job.ending() || jobs::Exits(job, rank)) turn.membership.Release(job.id, rank);
      if (turn.membership.agents().Find(r.node) == nullptr) {
        turn.membership.agents().Expect(
            {.node = r.node, .incarnation = r.agent_incarnation, .host = r.host}, turn.now);
      }
    }
  }
}

// Takes the changes of jobs, nodes and webhook messages into the batch, and their consequences into
// the effects. Handlers have already put all other rows into the batch.
store::Batch Cluster::TakeBatch() {
  Turn& turn = turn_;
  Jobs::Changes jobs = turn.jobs.TakeChanges();
  turn.batch.jobs = std::move(jobs.rows);
  for (store::EventRow& row : jobs.events) {
    turn.Say(absl::StrCat("job '", row.job_id, "': ", row.event.message));
    turn.batch.events.push_back(std::move(row));
  }
  for (std::string& id : jobs.changed) turn.effects.push_back(JobChanged{std::move(id)});
  Nodes::Changes nodes = turn.nodes.TakeChanges(
      turn.options.limits.node_marks,
      [&](const std::string& node) { return turn.membership.agents().Find(node) != nullptr; });
  turn.batch.node_marks = std::move(nodes.marks);
  turn.batch.removed_node_marks = std::move(nodes.removed);
  webhook::Outbox::Changes outbox = turn.outbox.TakeChanges();
  turn.batch.deliveries = std::move(outbox.added);
  turn.batch.removed_deliveries = std::move(outbox.removed);
  for (store::DeliveryRow& message : outbox.send)
    turn.effects.push_back(Deliver{std::move(message)});
  for (const auto& [receiver, number] : outbox.withdrawn) {
    turn.effects.push_back(Withdraw{receiver, number});
  }
  for (std::string& text : outbox.say) turn.Say(std::move(text));
  if (turn.options.planted_fault == PlantedFault::kLatePersist) {
    std::swap(turn.batch, late_batch_);
  }
  return std::exchange(turn.batch, {});
}

}  // namespace muster::cluster
