// Of how many ranks of a job's newest generation a flag is set.
#ifndef MUSTER_COORDINATOR_JOBS_RANKS_H_
#define MUSTER_COORDINATOR_JOBS_RANKS_H_

#include <algorithm>
#include <cstddef>

#include "coordinator/jobs/job.h"

namespace muster::jobs {

inline bool All(const Job& job, bool Rank::*flag) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

inline size_t Count(const Job& job, bool Rank::*flag) {
  return std::count_if(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_RANKS_H_
