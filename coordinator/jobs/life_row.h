// How a job's life is stored: as one flat row, whose columns are those of every phase. This is the
// only place that knows both. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_
#define MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// phase.h says what each column means. Columns of facts that the phase does not have, and
// end_deadline, which is not stored, are at their defaults.
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

// Columns that the row's phase does not have are ignored: a program of 0.3.0 left in them what was
// true before. Errors: DATA_LOSS if no life has this row: it is in a state of a job with processes
// and says that there are none, or the other way round.
absl::StatusOr<JobLife> LifeOf(const LifeRow& row);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIFE_ROW_H_
