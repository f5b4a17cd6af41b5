// Jobs and events for the tests of a job's life.
#ifndef MUSTER_COORDINATOR_JOBS_LIFE_FIXTURE_H_
#define MUSTER_COORDINATOR_JOBS_LIFE_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"

namespace muster::jobs {

inline const absl::Time kStart = absl::FromUnixSeconds(1000);
inline constexpr EndTimeouts kTimeouts;

inline absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

inline Job NewJob(uint32_t world_size = 2, uint32_t max_restarts = 1) {
  Job job;
  job.id = "job";
  job.number = 1;
  job.plan.world_size = world_size;
  job.plan.max_restarts = max_restarts;
  return job;
}

inline std::vector<Rank> Ranks(const Job& job) {
  std::vector<Rank> ranks(job.plan.world_size);
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    ranks[i].node = "n" + std::to_string(i);
    ranks[i].incarnation = "g" + std::to_string(job.generation + 1) + "r" + std::to_string(i);
  }
  return ranks;
}

// Lets all processes of a new generation attach and start their session.
inline void Begin(Job* job, uint64_t step = 0) {
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    OnAttached(job, rank);
    OnSessionStarted(job, rank, step);
  }
}

inline Job Running(uint32_t world_size = 2, uint32_t max_restarts = 1) {
  Job job = NewJob(world_size, max_restarts);
  StartGeneration(&job, Ranks(job), At(0));
  Begin(&job);
  return job;
}

inline Exit Code(int code) { return {.cause = Exit::Cause::kCode, .number = code}; }
inline Exit Signal(int signal) { return {.cause = Exit::Cause::kSignal, .number = signal}; }

inline constexpr char kFull[] = "No space left on device";

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIFE_FIXTURE_H_
