// The state of a job whose newest generation lives, and the reason of this state. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_LIVE_STATE_H_
#define MUSTER_COORDINATOR_JOBS_LIVE_STATE_H_

#include <string>

#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The reason code of a job if some of its ranks cannot connect to others.
inline constexpr char kRanksCannotMeet[] = "RANKS_CANNOT_MEET";

// Sets state, state_reason and reason_code.
void DescribeLive(Job* job);

// Returns warnings about a running job, for people; empty if there are none.
std::string Warning(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIVE_STATE_H_
