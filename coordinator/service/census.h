// How many jobs there are in each state, which have not ended, and which have ended last. It is
// kept up to date with each change of a job, so that nobody has to look at all jobs. Pure; one
// thread.
#ifndef MUSTER_COORDINATOR_SERVICE_CENSUS_H_
#define MUSTER_COORDINATOR_SERVICE_CENSUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::service {

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

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CENSUS_H_
