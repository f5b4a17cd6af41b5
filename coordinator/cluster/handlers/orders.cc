#include <utility>

#include "coordinator/cluster/handlers/consequences.h"

namespace muster::cluster {

void SendToRank(Turn& turn, const jobs::Job& job, uint32_t rank, WorkerOrder order) {
  const membership::Worker* worker = turn.membership.FindWorker(job.id, rank);
  if (worker == nullptr || !worker->attached()) return;
  turn.effects.push_back(SendToWorker{worker->session, std::move(order)});
}

void SendToNode(Turn& turn, const std::string& node, AgentOrder order) {
  const membership::Agent* agent = turn.membership.agents().Find(node);
  if (agent == nullptr || !agent->attached()) return;
  turn.effects.push_back(SendToAgent{agent->session, std::move(order)});
}

StopWorker StopOf(const Turn& turn, const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), turn.options.end_timeouts.kill};
}

StartWorker StartOf(const jobs::Job& job, uint32_t rank) {
  return {job.Worker(rank), job.ranks[rank].slot, job.plan.continue_when_cut_off, job.plan.threads};
}

uint64_t Append(Turn& turn, jobs::Job* job, commands::Command command) {
  command.create_time = turn.now;
  const uint64_t number = job->commands.Append(std::move(command));
  const commands::Delivery delivery = job->commands.DeliveryOf(number);
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const membership::Worker* worker = turn.membership.FindWorker(job->id, rank);
    if (worker == nullptr || !worker->attached()) continue;
    job->told_commands = number;
    SendToRank(turn, *job, rank, delivery);
  }
  turn.jobs.ListsChanged(*job);
  return number;
}

void Close(Turn& turn, PeerStreamId session, const absl::Status& why) {
  if (session == 0) return;
  turn.streams.Remove(session);
  turn.effects.push_back(CloseStream{session, why});
}

}  // namespace muster::cluster
