// Checks the project's invariants I1 to I9, as far as possible without LibTorch, at every event
// that could break an invariant.
#ifndef MUSTER_TESTS_SIMULATION_CHECKER_H_
#define MUSTER_TESTS_SIMULATION_CHECKER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "coordinator/cluster/cluster.h"
#include "coordinator/store/store.h"
#include "tests/simulation/shared_disk.h"
#include "tests/simulation/timeline.h"

namespace muster::simulation {

class Checker {
 public:
  Checker(Timeline* timeline, const SharedDisk* disk) : timeline_(*timeline), disk_(*disk) {}

  // Makes the checker accept that generations overlap. Ends of generations still count.
  void JudgeFencesOnly() { fences_only_ = true; }

  // ---- Processes. One owner per (job, generation, rank); never two generations of a job at once.
  void ProcessStarts(const cluster::WorkerId& worker);
  void ProcessEnded(const cluster::WorkerId& worker) {
    alive_[worker.job].erase(worker.incarnation);
  }
  // Excuses a worker whose whole machine stands still until `end`. Nothing can end the worker
  // before; then it has a moment to end.
  void ExcuseUntil(const cluster::WorkerId& worker, absl::Time end) {
    excused_until_[worker.incarnation] = end;
  }
  // Notes that a checkpoint could not be written. A job whose last checkpoint cannot be written
  // fails.
  void DiskFailed() { disk_failed_ = true; }
  // Notes a failure that may use up a restart of this generation's job.
  void Struck(const std::string& job, uint64_t generation) { struck_[job].insert(generation); }

  // Notes that processes on this node fail until `end`.
  void NodeIsDownUntil(const std::string& node, absl::Time end) {
    down_until_[node] = std::max(down_until_[node], end);
  }

  // Notes that a machine failed before its rank 0 sent its reports about this step. The next
  // generation may continue after this step, from a checkpoint that was not reported either.
  void MetricsAreLost(const std::string& job, uint64_t step) { lost_steps_[job].insert(step); }

  // ---- The folder of checkpoints. True if the database is an older one, which may name
  // checkpoints that were removed since.
  bool WasRestored(const std::string& job) const { return restored_.contains(job); }
  void Removes(const std::string& path);

  // ---- The durable state of the coordinator. Generations grow, terminal states do not change, and
  // slots have one user each. Checkpoints are recorded for the generation that wrote them. Restarts
  // are counted only after failures.
  void Committed(const store::Batch& batch, const cluster::Cluster& cluster);
  // Notes that the database was replaced by an older one, with this state.
  void Restored(const store::Image& image);

  // ---- The end of a job: `training` is the last state of its ranks.
  void SessionEnds(const std::string& job, const Training& training) { last_[job] = training; }
  // Called at the end of the run. Checks that the job's log, metrics and final state agree with
  // each other and with a run without faults.
  void JobIsOver(const jobs::Job& job, store::Store& store);

 private:
  struct Seen {
    uint64_t generation = 0;
    uint32_t attempt = 1;
    bool terminal = false;
    jobs::State state = jobs::State::kQueued;
    // Good checkpoints.
    std::set<std::string> checkpoints;
  };

  void CheckJob(const jobs::Job& job);
  void CheckSlots(const cluster::Cluster& cluster);
  Training Undisturbed(const jobs::Job& job) const;

  Timeline& timeline_;
  bool fences_only_ = false;
  bool disk_failed_ = false;
  const SharedDisk& disk_;
  // The processes that live, by job and incarnation.
  std::map<std::string, std::map<std::string, cluster::WorkerId>> alive_;
  std::map<std::string, absl::Time> excused_until_;
  std::map<std::pair<std::string, uint64_t>, std::map<uint32_t, std::string>> owners_;
  std::map<std::string, std::set<uint64_t>> struck_;
  std::map<std::string, absl::Time> down_until_;
  std::map<std::string, std::set<uint64_t>> lost_steps_;
  // Jobs whose rows are those of an older database.
  std::set<std::string> restored_;
  absl::Time restored_at_ = absl::InfinitePast();
  std::map<std::string, Seen> seen_;
  std::map<std::string, Training> last_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CHECKER_H_
