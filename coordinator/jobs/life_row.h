// The stored form of a job's life: one flat row with the columns of all phases. Only this file
// knows both forms. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_
#define MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The row. phase.h describes each column. A column that the phase does not have, and end_deadline,
// which is not stored, have their default values.
struct LifeRow : JobFacts, life::Alive {
  State state = State::kQueued;
  absl::Time end_time = absl::InfinitePast();
  bool live = false;
  bool ending = false;
  bool stop_requested = false;
  bool time_up = false;
  bool paused = false;
  absl::Time not_before = absl::InfinitePast();

  bool operator==(const LifeRow&) const = default;
};

LifeRow RowOf(const JobLife& life);

// Returns the life of a row. Columns that the row's phase does not have are ignored: 0.3.0 left
// former values in them. DATA_LOSS if the row contradicts itself, for example a state of a job with
// processes although `live` is false.
absl::StatusOr<JobLife> LifeOf(const LifeRow& row);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_
