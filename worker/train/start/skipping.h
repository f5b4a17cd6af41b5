// Leaving out samples of the training data while a job runs (muster skip-data). The samples count
// as taken, by no step: the place in the data moves on, and a stage by epochs has fewer steps.
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

// All outlive the call, which changes those that are not const.
struct SkipParts {
  Job* job;                           // where its schedule ends, if only the data tell
  SessionState* session_state;        // `position` and `sampling`
  std::vector<PlannedStage>* stages;  // the plan: a stage by epochs may get another end
  const data::Sampler* sampler;
  optim::Schedule written;  // as in the job file
  // A multiple of so many samples is left out, so that the ranks' own files stay at one place.
  // Where the last steps of an epoch may be uneven, whole steps are left out.
  int64_t together = 1;
};

// Leaves out the samples that the next steps would take, and says which. With `dry_run` it only
// says so. `samples`: of all ranks together, as the sampler's cursor counts them; at least 1. All
// ranks make the same calls, and decide the same. FAILED_PRECONDITION, the same on all ranks: no
// step of the stage would be left, or no validation pass for the export of the best checkpoint.
// Threading: the session's thread.
absl::StatusOr<v1::SkippedData> SkipSamples(const SkipParts& parts, int64_t samples, bool dry_run);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_SKIPPING_H_
