// Leaves out samples of the training data while a job runs (muster skip-data). The samples count as
// taken, but no step uses them. The position in the data moves on, and a stage by epochs has fewer
// steps.
#ifndef MUSTER_WORKER_TRAIN_START_SKIPPING_H_
#define MUSTER_WORKER_TRAIN_START_SKIPPING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/operation.pb.h"
#include "worker/data/sampler.h"
#include "worker/optim/schedule.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/session_state.h"

namespace muster::train {

// All must outlive the call. The call changes the objects that are not const.
struct SkipDependencies {
  Job* job;  // the call changes the end of its schedule, if the end follows from the data
  SessionState* session_state;        // the call changes `position` and `sampling`
  std::vector<PlannedStage>* stages;  // the plan; the end of a stage by epochs may change
  const data::Sampler* sampler;
  optim::Schedule written;  // the schedule of the job file
  // The number of skipped samples is a multiple of this number, so that the ranks' own files stay
  // at the same place. With uneven last steps of an epoch, whole steps are skipped.
  int64_t together = 1;
};

// Skips the samples of the next steps, and returns which samples. `dry_run`: changes nothing.
// `samples`: of all ranks together, in units of the sampler's cursor; at least 1. All ranks make
// the same calls and get the same result. FAILED_PRECONDITION on all ranks if no step of the stage
// would be left, or no validation pass for the export of the best checkpoint. Threading: the
// session's thread.
absl::StatusOr<v1::SkippedData> SkipSamples(const SkipDependencies& deps, int64_t samples,
                                            bool dry_run);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_SKIPPING_H_
