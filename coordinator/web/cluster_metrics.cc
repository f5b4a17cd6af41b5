#include "coordinator/web/cluster_metrics.h"

#include <string>

#include "coordinator/jobs/job.h"
#include "coordinator/web/device.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::web {
namespace {

void AddJobs(const service::Observation& seen, Exposition* out) {
  Metric jobs = out->Gauge("muster_jobs",
                           "Number of jobs by state, including those that have ended and were not "
                           "deleted.");
  const auto* states = v1::Job::State_descriptor();
  for (int i = 0; i < states->value_count(); ++i) {
    const int state = states->value(i)->number();
    if (state == v1::Job::STATE_UNSPECIFIED) continue;
    const auto found = seen.jobs_by_state.find(static_cast<jobs::State>(state));
    jobs.Set({{"state", states->value(i)->name()}},
             found == seen.jobs_by_state.end() ? 0.0 : static_cast<double>(found->second));
  }
  Metric waiting = out->Gauge("muster_queue_jobs",
                              "Number of jobs that wait for slots and have not started yet, by the "
                              "kind of device.");
  Metric wait = out->Gauge("muster_queue_oldest_wait_seconds",
                           "How long the job that waits longest has waited for its start, by the "
                           "kind of device; 0 if none waits.");
  for (const jobs::Device device : kDevices) {
    const auto found = seen.lines.find(device);
    const service::Line line = found == seen.lines.end() ? service::Line{} : found->second;
    waiting.Set({{"device", DeviceName(device)}}, static_cast<double>(line.jobs));
    wait.Set({{"device", DeviceName(device)}}, absl::ToDoubleSeconds(line.oldest_wait));
  }
  out->Gauge("muster_operations_pending", "Number of operations of all jobs that are not done.")
      .Set({}, static_cast<double>(seen.operations_pending));
}

void AddRanks(const service::Observation& seen, Exposition* out) {
  Metric ranks = out->Gauge("muster_ranks", "Number of ranks of jobs with processes, by state.");
  for (int state = v1::RankStatus::STARTING; state <= v1::RankStatus::EXITED; ++state) {
    const auto found = seen.ranks_by_state.find(static_cast<v1::RankStatus::State>(state));
    ranks.Set({{"state", v1::RankStatus::State_Name(static_cast<v1::RankStatus::State>(state))}},
              found == seen.ranks_by_state.end() ? 0.0 : static_cast<double>(found->second));
  }
}

void AddNodes(const service::Observation& seen, Exposition* out) {
  Metric nodes = out->Gauge("muster_nodes", "Number of nodes by state.");
  for (int state = v1::Node::ATTACHED; state <= v1::Node::LEFT_OUT; ++state) {
    const auto found = seen.nodes_by_state.find(static_cast<v1::Node::State>(state));
    nodes.Set({{"state", v1::Node::State_Name(static_cast<v1::Node::State>(state))}},
              found == seen.nodes_by_state.end() ? 0.0 : static_cast<double>(found->second));
  }
  Metric slots = out->Gauge("muster_slots", "Number of slots of all nodes, by the kind of device.");
  Metric used =
      out->Gauge("muster_slots_used", "Number of slots that ranks use, by the kind of device.");
  for (const jobs::Device device : kDevices) {
    const auto all = seen.slots.find(device);
    const auto in_use = seen.used_slots.find(device);
    slots.Set({{"device", DeviceName(device)}},
              all == seen.slots.end() ? 0.0 : static_cast<double>(all->second));
    used.Set({{"device", DeviceName(device)}},
             in_use == seen.used_slots.end() ? 0.0 : static_cast<double>(in_use->second));
  }
  out->Gauge("muster_slots_quarantined",
             "Number of slots that are not used because a process there cannot be ended.")
      .Set({}, static_cast<double>(seen.quarantined_slots));
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
      of_node.Set({{"node", node.node}, {"device", DeviceName(device)}},
                  static_cast<double>(count));
    }
    for (const auto& [device, count] : node.used) {
      used_of_node.Set({{"node", node.node}, {"device", DeviceName(device)}},
                       static_cast<double>(count));
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
  left_out.Set({{"kind", "jobs"}}, static_cast<double>(seen.jobs_left_out));
  left_out.Set({{"kind", "ranks"}}, static_cast<double>(seen.ranks_left_out));
  left_out.Set({{"kind", "nodes"}}, static_cast<double>(seen.nodes_left_out));
}

}  // namespace muster::web
