// Continues with the data where a checkpoint ends, although the ranks, the batch or the data have
// changed since the sessions that led to the checkpoint. Pure.
//
// An epoch is one pass over the data, whatever number of samples a step takes. The consumed samples
// are a position of the sampler. The rest of a stage by epochs follows from this position. With the
// same batch and data, the session is bitwise equal to a continuation without an interruption.
#ifndef MUSTER_WORKER_TRAIN_START_CONTINUATION_H_
#define MUSTER_WORKER_TRAIN_START_CONTINUATION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/manifest/sampling_record.h"
#include "worker/data/pace.h"
#include "worker/data/timeline.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"

namespace muster::train {

// Returns how a session from step 0 takes samples. `per_rank`: each rank has its own files.
manifest::SamplingRecord RecordOf(const Job& job, const data::Pace& pace, bool per_rank);

// Returns the timeline of a checkpoint's records, which are not empty and of this program.
data::Timeline TimelineOf(const std::vector<manifest::SamplingRecord>& sampling);

// The contents of a checkpoint, which any version of the program may have written.
struct CheckpointSampling {
  int64_t step = 0;
  data::Position position;
  std::vector<manifest::SamplingRecord> sampling;  // empty: an older program wrote the checkpoint
  int64_t world_size = 1;
};

// The session's own values: RecordOf, the ranks, and the job's stages. `ended`: that of PlanStages.
struct SessionSampling {
  manifest::SamplingRecord sampling;
  int64_t world_size = 1;
  std::vector<Stage> stages;
  std::vector<std::pair<int64_t, int64_t>> ended;
};

struct Continuation {
  std::vector<manifest::SamplingRecord> sampling;  // with the session's own record
  data::Position position;                         // the begin of the session
  bool pass_due = false;                           // PassDueAtChange
  // Notices for the user: the reason of the event, and the text.
  std::vector<std::pair<std::string, std::string>> told;
};

// Returns how the session continues. If the former batch has ended an epoch, the epoch is over:
// dropped samples stay dropped. A checkpoint of an older program does not name its batch. Then the
// batch is the session's batch with the ranks of the checkpoint, if this batch fits the position;
// otherwise the smallest batch that fits.
Continuation Continue(const CheckpointSampling& past, const SessionSampling& present);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_CONTINUATION_H_
