// Checks the invariants of the project (I1 to I9, as far as they can be checked without LibTorch)
// at every event that could break one.
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

  // Generations may overlap, and their ends count.
  void JudgeFencesOnly() { fences_only_ = true; }

  // ---- Processes. One owner per (job, generation, rank); never two generations of a job at once.
  void ProcessStarts(const cluster::WorkerId& worker);
  void ProcessEnded(const cluster::WorkerId& worker) {
    alive_[worker.job].erase(worker.incarnation);
  }
  // Its whole machine stands still: nothing can end it before it goes on,
  // and then it has a moment for that.
  void ExcuseUntil(const cluster::WorkerId& worker, absl::Time end) {
    excused_until_[worker.incarnation] = end;
  }
  // A checkpoint could not be written: the last one of a job fails it.
  void DiskFailed() { disk_failed_ = true; }
  // A failure that may use up a restart of this generation's job.
  void Struck(const std::string& job, uint64_t generation) { struck_[job].insert(generation); }

  // Processes that are placed on this node until then fail, too.
  void NodeIsDownUntil(const std::string& node, absl::Time end) {
    down_until_[node] = std::max(down_until_[node], end);
  }

  // A machine failed, and with it the reports of its rank 0 about this step that were not sent. The
  // next generation may continue after this step, from a checkpoint that was not reported either.
  void MetricsAreLost(const std::string& job, uint64_t step) { lost_steps_[job].insert(step); }

  // ---- The folder of checkpoints.
  // The database is an older one: it may name checkpoints that were removed since.
  bool WasRestored(const std::string& job) const { return restored_.contains(job); }
  void Removes(const std::string& path);

  // ---- The durable state of the coordinator: generations grow, terminal states do not change,
  // slots have one user each, checkpoints are recorded of the generation that wrote them, and
  // restarts are counted only where something failed.
  void Committed(const store::Batch& batch, const cluster::Cluster& cluster);
  // From now on the database is an older one, with this state.
  void Restored(const store::Image& image);

  // ---- The end of a job: `training` is what its ranks held last.
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
  // By job and incarnation.
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
