// How a session goes on with the data where a checkpoint ends, if the ranks, the batch or the data
// are others than those of the sessions that led to the checkpoint. Pure.
//
// An epoch is a pass over the data, whatever takes its samples: what was consumed is a position of
// the sampler, and what is left of a stage by epochs follows from this position. With the same
// batch and data the session goes on to the bit as the one before it would have.
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

// How a session takes samples that begins at step 0. `per_rank`: each rank has files of its own.
manifest::SamplingRecord RecordOf(const Job& job, const data::Pace& pace, bool per_rank);

// The records as a checkpoint of this program has them; not empty.
data::Timeline TimelineOf(const std::vector<manifest::SamplingRecord>& sampling);

// What the checkpoint says, of any program.
struct Past {
  int64_t step = 0;
  data::Position position;
  std::vector<manifest::SamplingRecord> sampling;  // empty: an older program wrote it
  int64_t world_size = 1;
};

// The session's own: RecordOf, the ranks, and the job's stages. `ended`: as PlanStages takes it.
struct Present {
  manifest::SamplingRecord sampling;
  int64_t world_size = 1;
  std::vector<Stage> stages;
  std::vector<std::pair<int64_t, int64_t>> ended;
};

struct Continuation {
  std::vector<manifest::SamplingRecord> sampling;  // with the session's own
  data::Position position;                         // from which the session goes on
  bool pass_due = false;                           // PassDueAtChange
  // What a user should know, each with the reason of its event.
  std::vector<std::pair<std::string, std::string>> told;
};

// An epoch that the former batch has ended is over: what that batch dropped stays dropped. If an
// older program wrote the checkpoint, its batch is taken to be that of the session with the ranks
// of the checkpoint, if this fits the position, else the smallest one that does.
Continuation Continue(const Past& past, const Present& present);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_CONTINUATION_H_
