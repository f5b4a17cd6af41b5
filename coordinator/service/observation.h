// What programs that watch musterd get to know of its jobs, ranks and nodes: plain values, as of
// one moment. How many there are is limited (ObservedLimits), so that neither the time to make it
// nor its size depends on how many jobs there ever were.
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
  // Since its last message, and since it was last seen to make progress. Absent: it has no process
  // that has ever sent one.
  std::optional<absl::Duration> silence;
  std::optional<absl::Duration> standstill;
  // v1::RankMemory, serialized; empty: not known.
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
  // Failed saves in a row.
  uint32_t failed_saves = 0;
  // Of the newest checkpoint that counts.
  std::optional<uint64_t> checkpoint_step;
  uint32_t active_ranks = 0;
  uint32_t joined_ranks = 0;
  jobs::JobProgress progress;
  // Of the newest steps: StepMetrics, serialized. Empty: it does not train.
  std::deque<std::string> newest_steps;
  // Those of its newest generation, while it has processes; not all of them if there are too many
  // ranks.
  std::vector<ObservedRank> ranks;
};

struct ObservedNode {
  std::string node;
  v1::Node::State state = v1::Node::STATE_UNSPECIFIED;
  // By device.
  std::map<jobs::Device, uint64_t> slots;
  std::map<jobs::Device, uint64_t> used;
  uint64_t quarantined = 0;
};

// The QUEUED jobs for one kind of device that wait for their first start.
struct Line {
  uint64_t jobs = 0;
  absl::Duration oldest_wait;
};

struct Observation {
  // ---- Of all.
  std::map<jobs::State, size_t> jobs_by_state;
  std::map<v1::RankStatus::State, size_t> ranks_by_state;
  std::map<v1::Node::State, size_t> nodes_by_state;
  std::map<jobs::Device, uint64_t> slots;
  std::map<jobs::Device, uint64_t> used_slots;
  uint64_t quarantined_slots = 0;
  std::map<jobs::Device, Line> lines;
  uint64_t operations_pending = 0;
  // Whether the database can be written.
  bool store_writable = true;
  // ---- As many as are told.
  std::vector<ObservedJob> jobs;
  std::vector<ObservedNode> nodes;
  // What has no values of its own here because there is too much of it.
  uint64_t jobs_left_out = 0;
  uint64_t ranks_left_out = 0;
  uint64_t nodes_left_out = 0;
};

// How many jobs there are in each state, which have not ended, and which have ended last. It is
// kept up to date with each change of a job, so that nobody has to look at all jobs. Pure; one
// thread.
class Census {
 public:
  // `most_ended`: how many jobs that have failed are remembered by name, and how many that have
  // ended otherwise.
  explicit Census(size_t most_ended) : most_ended_(most_ended) {}

  // A new job, or one that may have changed.
  void Saw(const jobs::Job& job);
  void Deleted(const std::string& job_id);

  // Without the states in which no job ever was.
  const std::map<jobs::State, size_t>& counts() const { return counts_; }
  // Those that have not ended, by number.
  const std::map<uint64_t, std::string>& open() const { return open_; }
  // Those that have ended last, by the time of their end: those that have failed are apart, so that
  // others do not displace them.
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

Observation Observe(const cluster::Cluster& cluster, const Census& census,
                    const ObservedLimits& limits, absl::Time now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_OBSERVATION_H_
