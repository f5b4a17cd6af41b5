// All jobs, and which of their rows must be stored. Pure: rows are taken with TakeChanges.
#ifndef MUSTER_COORDINATOR_CLUSTER_PARTS_JOBS_H_
#define MUSTER_COORDINATOR_CLUSTER_PARTS_JOBS_H_

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

// What the cluster knows of a job besides what is stored of it.
struct JobNotes {
  // Nodes on which processes of generation `known_since` and of all later ones have run. Those of
  // earlier generations are not stored.
  std::set<std::string> nodes;
  uint64_t known_since = 0;
  // StepDone::metrics of the last steps of a generation that trains, oldest first, at most
  // kSpeedSteps: its throughput follows from them.
  std::deque<std::string> newest_steps;
  // The generation whose end was judged last.
  uint64_t judged = 0;
  // Of a job that is being stopped: what its ranks have done.
  std::optional<uint64_t> stop_activity;
  // The last state that was written to the daemon's log.
  std::optional<jobs::State> said;
};

inline constexpr size_t kSpeedSteps = 20;

class Jobs {
 public:
  explicit Jobs(uint64_t last_number) : last_number_(last_number) {}

  // Takes a job as it is stored. Its notes begin with the nodes of its newest generation.
  jobs::Job* Load(const jobs::Job& stored);
  // A new job. Its number is the next one. An empty id is made from the name and the number. Null:
  // there is a job with this id.
  jobs::Job* Add(const std::string& id, const std::string& name, const std::string& spec);
  // Nothing is left of the job, also not in changes that were not taken.
  void Remove(const std::string& id);
  // jobs::ChangeSettings, with which spec_bytes() changes.
  void ChangeSettings(jobs::Job* job, jobs::NewSettings settings, const std::string& requester,
                      uint64_t command, absl::Time now);

  // ---- Looking. Null when not known.
  jobs::Job* Find(const std::string& id) {
    return const_cast<jobs::Job*>(std::as_const(*this).Find(id));
  }
  const jobs::Job* Find(const std::string& id) const;
  JobNotes& NotesOf(const std::string& id) { return entries_.at(id).notes; }
  const JobNotes& NotesOf(const std::string& id) const { return entries_.at(id).notes; }
  // The ids of all jobs, by number.
  const std::map<uint64_t, std::string>& submitted() const { return submitted_; }
  // Jobs that have not ended, by number.
  std::vector<jobs::Job*> Open();
  std::vector<const jobs::Job*> Open() const;
  // By id: the ranks of live jobs whose processes may be on this node, in order.
  std::map<std::string, std::vector<uint32_t>> RanksOn(const std::string& node) const;
  // Live jobs with ranks there that may have processes, by number.
  std::vector<jobs::Job*> LiveOn(const std::string& node);
  // The rank of this process, if it is the rank's current process and not gone; otherwise null.
  jobs::Rank* CurrentRank(const membership::WorkerId& id);
  // False: the process has run on another node, or on none.
  bool MayBeOn(const std::string& node, const membership::WorkerId& worker) const;
  size_t open_count() const { return open_.size(); }
  size_t spec_bytes() const { return spec_bytes_; }
  uint64_t last_number() const { return last_number_; }

  // ---- Changes.
  // Something that watchers see. The job gets a new version, its row is stored, and a job that has
  // ended is not open any more. Handlers call cluster::Changed (consequences.h), which also tells
  // the webhooks.
  void Changed(jobs::Job* job);
  // A row of one of the job's lists. Without this call no list is compared with its stored rows.
  void ListsChanged(const jobs::Job& job) { dirty_[job.id].lists = true; }
  void RankChanged(const std::string& id, uint32_t rank) { dirty_[id].ranks.insert(rank); }
  // A field of the job that watchers do not see, such as the number of its newest log line.
  void MustBeStored(const jobs::Job& job) { dirty_[job.id]; }
  // Something that watchers see and that is not stored. True: watchers may be told at once. False:
  // the job has used all versions up to its ceiling, and a higher ceiling is stored first. Then
  // TakeChanges gives it the next version.
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
    // What the store has of it.
    store::JobRows rows;
    JobNotes notes;
  };
  struct Dirty {
    bool lists = false;
    std::set<uint32_t> ranks;
    // The job gets its next version, below the ceiling that is stored with it.
    bool shows_more = false;
  };

  std::map<std::string, Entry> entries_;
  std::map<uint64_t, std::string> submitted_;
  std::map<uint64_t, std::string> open_;
  // The highest number that a job ever had: numbers are not used again.
  uint64_t last_number_ = 0;
  size_t spec_bytes_ = 0;
  // Since the last TakeChanges.
  std::map<std::string, Dirty> dirty_;
};

// Remembers the nodes of the job's generation.
void NotePlaces(const jobs::Job& job, JobNotes* notes);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_PARTS_JOBS_H_
