// After every start: what the coordinator does not know because its database may be restored from
// an older copy: processes that were started later may still run. Jobs do not start again before
// such processes have ended. Pure.
#ifndef MUSTER_COORDINATOR_CLUSTER_PARTS_RESTORED_H_
#define MUSTER_COORDINATOR_CLUSTER_PARTS_RESTORED_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace muster::cluster {

class Restored {
 public:
  // Nodes of the start are awaited until the first Tick at or after `until`, when their leases are
  // over.
  explicit Restored(absl::Time until) : until_(until) {}

  // ---- What the database had at the start.
  void HadNode(const std::string& node) { awaited_.insert(node); }
  // `newest_command`: the number of the newest command of a job with processes; absent for a job
  // without any.
  void HadJob(const std::string& job, std::optional<uint64_t> newest_command);

  // ---- Events.
  // Leases were renewed, and last until `until` now.
  void Await(absl::Time until) { until_ = until; }
  // Time passed in which nodes could attach.
  void Tick(absl::Time now);
  // The agent of the node has attached, or an operator says that the node is gone.
  void NodeKnown(const std::string& node) { awaited_.erase(node); }
  // A process of this job knows more than the database: the database may also not know all nodes
  // of the job's processes.
  void KnowsMore(const std::string& job);
  // A process of a later generation than its job's runs on this node.
  void LaterProcess(const std::string& job, const std::string& incarnation,
                    const std::string& node);
  void ProcessEnded(const std::string& job, const std::string& incarnation,
                    const std::string& node);
  // All processes on this node have ended, with their agent or with its lease.
  void ProcessesEnded(const std::string& node);
  // A later job with the same id inherits nothing.
  void JobDeleted(const std::string& job);
  // A process has attached. If its job had processes at the start, and this one attaches for the
  // first time: the number of the newest command that the database had at the start. Commands that
  // were given later may have numbers of commands that the database has lost. Otherwise absent.
  std::optional<uint64_t> Attached(const std::string& job, const std::string& incarnation);

  // ---- Questions.
  // The database had the job at the start.
  bool Had(const std::string& job) const;
  // Processes of the job may still run that the database does not know. The job must not start.
  bool MayStillRun(const std::string& job, absl::Time now) const;

 private:
  struct WithProcesses {
    uint64_t newest_command = 0;
    // Incarnations that have attached since the start.
    std::set<std::string> attached;
  };

  absl::Time until_;
  // Nodes that were known at the start and whose agents have not attached since.
  std::set<std::string> awaited_;
  // Jobs of the start, without and with processes.
  std::set<std::string> idle_;
  std::map<std::string, WithProcesses> live_;
  // Jobs whose processes know more than the database.
  std::set<std::string> behind_;
  // By job and incarnation: the nodes of processes of later generations.
  std::map<std::pair<std::string, std::string>, std::string> later_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_PARTS_RESTORED_H_
