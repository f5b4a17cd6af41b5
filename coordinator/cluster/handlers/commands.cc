#include "coordinator/cluster/handlers/commands.h"

#include <cstdint>
#include <utility>

#include "coordinator/cluster/handlers/orders.h"
#include "coordinator/membership/membership.h"

namespace muster::cluster {

void Append(Turn& turn, jobs::Job* job, commands::Command command) {
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
}

}  // namespace muster::cluster
