// All jobs, and the rows of them that must be stored. Pure: TakeChanges returns the rows.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_JOBS_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/settings.h"
#include "coordinator/membership/worker_id.h"
#include "coordinator/store/job_rows.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

// Facts about a job that are not stored.
struct JobNotes {
  // The nodes on which processes of generation `known_since` and later generations have run. The
  // nodes of earlier generations are not stored.
  std::set<std::string> nodes;
  uint64_t known_since = 0;
  // StepDone::metrics of the last steps of a generation that trains, oldest first, at most
  // kSpeedSteps. The throughput is computed from them.
  std::deque<std::string> newest_steps;
  // The generation whose end was judged last.
  uint64_t judged = 0;
  // The progress of the ranks of a job that is being stopped.
  std::optional<uint64_t> stop_activity;
  // The last state that was written to the daemon's log.
  std::optional<jobs::State> said;
};

inline constexpr size_t kSpeedSteps = 20;

class Jobs {
 public:
  explicit Jobs(uint64_t last_number) : last_number_(last_number) {}

  // Takes a stored job. Its notes begin with the nodes of its newest generation.
  jobs::Job* Load(const jobs::Job& stored);
  // Adds a job with the next number. An empty id is made from the name and the number. Null if a
  // job with this id exists.
  jobs::Job* Add(const std::string& id, const std::string& name, const std::string& spec);
  // Removes the job, also from changes that were not taken.
  void Remove(const std::string& id);
  // Calls jobs::ChangeSettings and updates spec_bytes().
  void ChangeSettings(jobs::Job* job, jobs::NewSettings settings, const std::string& requester,
                      uint64_t command, absl::Time now);

  // ---- Looking. Null if the job or process is not known.
  jobs::Job* Find(const std::string& id) {
    return const_cast<jobs::Job*>(std::as_const(*this).Find(id));
  }
  const jobs::Job* Find(const std::string& id) const;
  JobNotes& NotesOf(const std::string& id) { return entries_.at(id).notes; }
  const JobNotes& NotesOf(const std::string& id) const { return entries_.at(id).notes; }
  // The ids of all jobs, by number.
  const std::map<uint64_t, std::string>& submitted() const { return submitted_; }
  // The jobs that have not ended, by number.
  std::vector<jobs::Job*> Open();
  std::vector<const jobs::Job*> Open() const;
  // The ranks of live jobs whose processes may be on this node, in order, by job id.
  std::map<std::string, std::vector<uint32_t>> RanksOn(const std::string& node) const;
  // The live jobs with ranks on this node that may have processes, by number.
  std::vector<jobs::Job*> LiveOn(const std::string& node);
  // The rank of this process. Null unless the process is the rank's current process and is not
  // gone.
  jobs::Rank* CurrentRank(const membership::WorkerId& id);
  // False if the process is known to have run on another node, or on no node.
  bool MayBeOn(const std::string& node, const membership::WorkerId& worker) const;
  size_t open_count() const { return open_.size(); }
  size_t spec_bytes() const { return spec_bytes_; }
  uint64_t last_number() const { return last_number_; }

  // ---- Changes.
  // Records a change that watchers see. The job gets a new version and its row is stored. An ended
  // job is removed from the open jobs. Handlers call cluster::Changed (consequences.h), which also
  // tells the webhooks.
  void Changed(jobs::Job* job);
  // Records a change in one of the job's lists. Without this call the list's new rows are not
  // stored.
  void ListsChanged(const jobs::Job& job) { dirty_[job.id].lists = true; }
  void RankChanged(const std::string& id, uint32_t rank) { dirty_[id].ranks.insert(rank); }
  // Records a change that watchers do not see, for example the number of the newest log line.
  void MustBeStored(const jobs::Job& job) { dirty_[job.id]; }
  // Records a change that watchers see and that is not stored. True if watchers may be told at
  // once. False if the job has used all versions up to its ceiling. Then a higher ceiling is stored
  // first, and TakeChanges gives the job the next version.
  bool ShowsMore(jobs::Job* job);

  struct Changes {
    std::vector<store::Batch::JobRow> rows;
    std::vector<store::EventRow> events;
    // Ids of all jobs that have changed.
    std::vector<std::string> changed;
  };
  Changes TakeChanges();

 private:
  struct Entry {
    jobs::Job job;
    // The rows as the store has them.
    store::JobRows rows;
    JobNotes notes;
  };
  struct Dirty {
    bool lists = false;
    std::set<uint32_t> ranks;
    // Whether the job gets its next version when its new ceiling is stored.
    bool shows_more = false;
  };

  std::map<std::string, Entry> entries_;
  std::map<uint64_t, std::string> submitted_;
  std::map<uint64_t, std::string> open_;
  // The highest number that a job ever had. Numbers are not used again.
  uint64_t last_number_ = 0;
  size_t spec_bytes_ = 0;
  // The changes since the last TakeChanges.
  std::map<std::string, Dirty> dirty_;
};

// Adds the nodes of the job's generation to the notes.
void NotePlaces(const jobs::Job& job, JobNotes* notes);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_JOBS_H_
