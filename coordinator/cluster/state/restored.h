// Processes that the coordinator may not know after a start, because its database may be restored
// from an older copy. A job does not start again before such processes have ended. Pure.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_RESTORED_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_RESTORED_H_

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
  // Nodes of the start are awaited until the first Tick at or after `until`. Then their leases are
  // over.
  explicit Restored(absl::Time until) : until_(until) {}

  // ---- What the database had at the start.
  void HadNode(const std::string& node) { awaited_.insert(node); }
  // Adds a job of the start. `newest_command`: the number of the newest command of a job with
  // processes; absent for a job without processes.
  void HadJob(const std::string& job, std::optional<uint64_t> newest_command);

  // ---- Events.
  // Records that leases were renewed and last until `until`.
  void Await(absl::Time until) { until_ = until; }
  // Records the time. Nodes could attach since the last call.
  void Tick(absl::Time now);
  // Ends the wait for this node: its agent has attached, or an operator says that the node is gone.
  void NodeKnown(const std::string& node) { awaited_.erase(node); }
  // Records that a process of this job knows more than the database. Then the database may also
  // lack nodes of the job's processes.
  void KnowsMore(const std::string& job);
  // Records that a process of a later generation than its job's runs on this node.
  void LaterProcess(const std::string& job, const std::string& incarnation,
                    const std::string& node);
  void ProcessEnded(const std::string& job, const std::string& incarnation,
                    const std::string& node);
  // Records that all processes on this node have ended, with their agent or with its lease.
  void ProcessesEnded(const std::string& node);
  // Forgets the job, so that a later job with the same id starts without its facts.
  void JobDeleted(const std::string& job);
  // Records that a process has attached. For the first attachment of a process whose job had
  // processes at the start, returns the number of the newest command in the database at the start.
  // Otherwise absent. Commands given later may reuse numbers of commands that the database has
  // lost.
  std::optional<uint64_t> Attached(const std::string& job, const std::string& incarnation);

  // ---- Questions.
  // Returns whether the database had the job at the start.
  bool Had(const std::string& job) const;
  // Returns whether processes of the job may still run that the database does not know. Then the
  // job must not start.
  bool MayStillRun(const std::string& job, absl::Time now) const;

 private:
  struct WithProcesses {
    uint64_t newest_command = 0;
    // The incarnations that have attached since the start.
    std::set<std::string> attached;
  };

  absl::Time until_;
  // The nodes known at the start whose agents have not attached since.
  std::set<std::string> awaited_;
  // The jobs of the start: without processes, and with processes.
  std::set<std::string> idle_;
  std::map<std::string, WithProcesses> live_;
  // The jobs whose processes know more than the database.
  std::set<std::string> behind_;
  // The nodes of processes of later generations, by job and incarnation.
  std::map<std::pair<std::string, std::string>, std::string> later_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_RESTORED_H_
