#include <map>

#include "coordinator/web/metrics.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::web {
namespace {

// Returns the number that was counted for this key.
template <typename Key, typename Number>
Number Count(const std::map<Key, Number>& counts, Key key) {
  const auto found = counts.find(key);
  return found == counts.end() ? Number{} : found->second;
}

void AddJobs(const service::Observation& seen, Exposition* out) {
  Metric jobs = out->Gauge("muster_jobs",
                           "Number of jobs by state, including those that have ended and were not "
                           "deleted.");
  const auto* states = v1::Job::State_descriptor();
  for (int i = 0; i < states->value_count(); ++i) {
    if (states->value(i)->number() == v1::Job::STATE_UNSPECIFIED) continue;
    const auto state = static_cast<jobs::State>(states->value(i)->number());
    jobs.Set({{"state", jobs::Name(state)}}, Count(seen.jobs_by_state, state));
  }
  Metric waiting = out->Gauge("muster_queue_jobs",
                              "Number of jobs that wait for slots and have not started yet, by the "
                              "kind of device.");
  Metric wait = out->Gauge("muster_queue_oldest_wait_seconds",
                           "How long the job that waits longest has waited for its start, by the "
                           "kind of device; 0 if none waits.");
  for (const jobs::Device device : kDevices) {
    const service::DeviceQueue queue = Count(seen.queues, device);
    waiting.Set({{"device", DeviceName(device)}}, queue.jobs);
    wait.Set({{"device", DeviceName(device)}}, absl::ToDoubleSeconds(queue.oldest_wait));
  }
  out->Gauge("muster_operations_pending", "Number of operations of all jobs that are not done.")
      .Set({}, seen.operations_pending);
}

void AddRanks(const service::Observation& seen, Exposition* out) {
  Metric ranks = out->Gauge("muster_ranks", "Number of ranks of jobs with processes, by state.");
  for (int number = v1::RankStatus::STARTING; number <= v1::RankStatus::EXITED; ++number) {
    const auto state = static_cast<v1::RankStatus::State>(number);
    ranks.Set({{"state", v1::RankStatus::State_Name(state)}}, Count(seen.ranks_by_state, state));
  }
}

void AddNodes(const service::Observation& seen, Exposition* out) {
  Metric nodes = out->Gauge("muster_nodes", "Number of nodes by state.");
  for (int number = v1::Node::ATTACHED; number <= v1::Node::LEFT_OUT; ++number) {
    const auto state = static_cast<v1::Node::State>(number);
    nodes.Set({{"state", v1::Node::State_Name(state)}}, Count(seen.nodes_by_state, state));
  }
  Metric slots = out->Gauge("muster_slots", "Number of slots of all nodes, by the kind of device.");
  Metric used =
      out->Gauge("muster_slots_used", "Number of slots that ranks use, by the kind of device.");
  for (const jobs::Device device : kDevices) {
    slots.Set({{"device", DeviceName(device)}}, Count(seen.slots, device));
    used.Set({{"device", DeviceName(device)}}, Count(seen.used_slots, device));
  }
  out->Gauge("muster_slots_quarantined",
             "Number of slots that are not used because a process there cannot be ended.")
      .Set({}, seen.quarantined_slots);
  Metric state = out->Gauge("muster_node_state",
                            "1 for the state in which the node is; other states are absent.");
  Metric of_node =
      out->Gauge("muster_node_slots", "Number of slots of the node, by the kind of device.");
  Metric used_of_node = out->Gauge("muster_node_slots_used",
                                   "Number of slots of the node that ranks use, by the kind of "
                                   "device.");
  for (const service::ObservedNode& node : seen.nodes) {
    state.Set({{"node", node.node}, {"state", v1::Node::State_Name(node.state)}}, 1);
    for (const auto& [device, count] : node.slots) {
      of_node.Set({{"node", node.node}, {"device", DeviceName(device)}}, count);
    }
    for (const auto& [device, count] : node.used) {
      used_of_node.Set({{"node", node.node}, {"device", DeviceName(device)}}, count);
    }
  }
}

}  // namespace

void AddClusterMetrics(const service::Observation& seen, Exposition* out) {
  AddJobs(seen, out);
  AddRanks(seen, out);
  AddNodes(seen, out);
  Metric left_out = out->Gauge("muster_left_out",
                               "Number of jobs, ranks and nodes without metrics of their own, "
                               "because there are too many of them.");
  left_out.Set({{"kind", "jobs"}}, seen.jobs_left_out);
  left_out.Set({{"kind", "ranks"}}, seen.ranks_left_out);
  left_out.Set({{"kind", "nodes"}}, seen.nodes_left_out);
}

}  // namespace muster::web
