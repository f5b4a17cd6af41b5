#include "coordinator/cluster/cluster.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/life.h"

namespace muster::cluster {

Cluster::Cluster(const Options& options, const store::Image& image, absl::Time now)
    : context_(options, image, now) {
  HandlerContext& context = At(now);
  for (const store::NodeRow& row : image.nodes) {
    context.restored.HadNode(row.node);
    context.membership.agents().Expect(
        {.node = row.node, .incarnation = row.incarnation, .host = row.host, .slots = row.slots},
        context.now);
  }
  for (const jobs::Job& stored : image.jobs) {
    jobs::Job& job = *context.jobs.Load(stored);
    JobNotes& notes = context.jobs.NotesOf(stored.id);
    context.outbox.Know(stored);
    jobs::OnLoaded(&job, context.options.end_timeouts, context.now);
    if (!job.live()) notes.judged = job.generation;
    notes.said = job.state();
    context.restored.HadJob(job.id,
                            job.live() ? std::optional(job.commands.newest()) : std::nullopt);
    if (!job.live()) continue;
    for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
      const jobs::Rank& r = job.ranks[rank];
      if (r.exited) continue;
      context.membership.ExpectWorker(job.Worker(rank), r.node, r.session_started, context.now,
                                      ProgressLimitsOf(context.options, job));
      if (job.ending() || jobs::Exits(job, rank)) context.membership.Release(job.id, rank);
      if (context.membership.agents().Find(r.node) == nullptr) {
        context.membership.agents().Expect(
            {.node = r.node, .incarnation = r.agent_incarnation, .host = r.host}, context.now);
      }
    }
  }
}

// Takes the changes of jobs, nodes and webhook messages into the batch, and their consequences into
// the effects. Handlers have already put all other rows into the batch.
store::Batch Cluster::TakeBatch() {
  HandlerContext& context = context_;
  Jobs::Changes jobs = context.jobs.TakeChanges();
  context.batch.jobs = std::move(jobs.rows);
  for (store::EventRow& row : jobs.events) {
    context.Log(absl::StrCat("job '", row.job_id, "': ", row.event.message));
    context.batch.events.push_back(std::move(row));
  }
  for (std::string& id : jobs.changed) context.effects.push_back(JobChanged{std::move(id)});
  Nodes::Changes nodes = context.nodes.TakeChanges(
      context.options.limits.node_marks,
      [&](const std::string& node) { return context.membership.agents().Find(node) != nullptr; });
  context.batch.node_marks = std::move(nodes.marks);
  context.batch.removed_node_marks = std::move(nodes.removed);
  webhook::Outbox::Changes outbox = context.outbox.TakeChanges();
  context.batch.deliveries = std::move(outbox.added);
  context.batch.removed_deliveries = std::move(outbox.removed);
  for (store::DeliveryRow& message : outbox.send)
    context.effects.push_back(SendWebhook{std::move(message)});
  for (const auto& [receiver, number] : outbox.withdrawn) {
    context.effects.push_back(WithdrawWebhook{receiver, number});
  }
  for (std::string& text : outbox.say) context.Log(std::move(text));
  if (context.options.planted_fault == PlantedFault::kLatePersist) {
    std::swap(context.batch, late_batch_);
  }
  return std::exchange(context.batch, {});
}

}  // namespace muster::cluster
