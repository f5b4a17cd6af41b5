// A snapshot of jobs, ranks and nodes for programs that watch musterd, as plain values.
// ObservedLimits limit the number of entries. So the time and the size of a snapshot do not depend
// on how many jobs there ever were.
#ifndef MUSTER_COORDINATOR_SERVICE_OBSERVATION_H_
#define MUSTER_COORDINATOR_SERVICE_OBSERVATION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/job.h"
#include "coordinator/limits/limits.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

struct ObservedRank {
  uint32_t rank = 0;
  std::string node;
  v1::RankStatus::State state = v1::RankStatus::STATE_UNSPECIFIED;
  uint64_t step = 0;
  // The time since the rank's last message, and since it was last seen to make progress. Absent if
  // its process has never sent a message, or if there is no process.
  std::optional<absl::Duration> silence;
  std::optional<absl::Duration> standstill;
  // v1::RankMemory, serialized; empty if it is not known.
  std::string memory;
};

struct ObservedJob {
  std::string id;
  jobs::State state = jobs::State::kQueued;
  jobs::Device device = jobs::Device::kCpu;
  uint32_t world_size = 0;
  uint64_t total_steps = 0;
  uint64_t generation = 0;
  uint32_t attempt = 0;
  uint32_t restarts = 0;
  uint32_t restarts_left = 0;
  size_t operations_pending = 0;
  // The number of failed saves in a row.
  uint32_t failed_saves = 0;
  // The step of the newest checkpoint that counts.
  std::optional<uint64_t> checkpoint_step;
  uint32_t active_ranks = 0;
  uint32_t joined_ranks = 0;
  jobs::JobProgress progress;
  // StepMetrics of the newest steps, serialized; empty if the job does not train.
  std::deque<std::string> newest_steps;
  // The ranks of the newest generation while it has processes. Some are missing if there are too
  // many.
  std::vector<ObservedRank> ranks;
};

struct ObservedNode {
  std::string node;
  v1::Node::State state = v1::Node::STATE_UNSPECIFIED;
  // The slots by device: all slots, and used slots.
  std::map<jobs::Device, uint64_t> slots;
  std::map<jobs::Device, uint64_t> used;
  uint64_t quarantined = 0;
};

// The QUEUED jobs for one kind of device that wait for their first start.
struct DeviceQueue {
  uint64_t jobs = 0;
  absl::Duration oldest_wait;
};

struct Observation {
  // ---- Counts of all jobs, ranks and nodes.
  std::map<jobs::State, size_t> jobs_by_state;
  std::map<v1::RankStatus::State, size_t> ranks_by_state;
  std::map<v1::Node::State, size_t> nodes_by_state;
  std::map<jobs::Device, uint64_t> slots;
  std::map<jobs::Device, uint64_t> used_slots;
  uint64_t quarantined_slots = 0;
  std::map<jobs::Device, DeviceQueue> queues;
  uint64_t operations_pending = 0;
  // Whether the database can be written.
  bool store_writable = true;
  // ---- Entries, up to ObservedLimits.
  std::vector<ObservedJob> jobs;
  std::vector<ObservedNode> nodes;
  // The numbers of jobs, ranks and nodes without an entry, because there are too many.
  uint64_t jobs_left_out = 0;
  uint64_t ranks_left_out = 0;
  uint64_t nodes_left_out = 0;
};

// The jobs in each state, the jobs that have not ended, and the jobs that ended last. Each change
// of a job updates the counts, so that readers need not look at all jobs. Pure; one thread.
class JobStateIndex {
 public:
  // `most_ended`: how many failed jobs are remembered by name, and how many jobs that ended
  // otherwise.
  explicit JobStateIndex(size_t most_ended) : most_ended_(most_ended) {}

  // Adds a job, or updates a job that may have changed.
  void Saw(const jobs::Job& job);
  void Deleted(const std::string& job_id);

  // The number of jobs in each state. States in which no job ever was are missing.
  const std::map<jobs::State, size_t>& counts() const { return counts_; }
  // The jobs that have not ended, by number.
  const std::map<uint64_t, std::string>& open() const { return open_; }
  // The jobs that ended last, by the time of their end. Failed jobs are kept separately, so that
  // other jobs do not displace them.
  using Ended = std::map<std::pair<absl::Time, uint64_t>, std::string>;
  const Ended& failed() const { return failed_; }
  const Ended& ended() const { return ended_; }

 private:
  struct Seen {
    jobs::State state = jobs::State::kQueued;
    uint64_t number = 0;
    absl::Time end_time;
  };

  const size_t most_ended_;
  absl::flat_hash_map<std::string, Seen> seen_;
  std::map<jobs::State, size_t> counts_;
  std::map<uint64_t, std::string> open_;
  Ended failed_;
  Ended ended_;
};

Observation Observe(const cluster::Cluster& cluster, const JobStateIndex& index,
                    const ObservedLimits& limits, absl::Time now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_OBSERVATION_H_
