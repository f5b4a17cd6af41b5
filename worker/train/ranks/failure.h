// The consequences of a session's error for the job.
#ifndef MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_
#define MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_

#include "absl/status/status.h"

namespace muster::train {

// The cause of an error, for the coordinator. The text of the error does not tell the cause. The
// values are sent (v1::WorkerFailure.Kind).
enum class Cause {
  kNone = 0,
  // No checkpoint of the job can be read. The job waits for a person.
  kCheckpointsUnreadable = 1,
  // Training is done, but its last checkpoint or its export could not be written. Training is not
  // repeated.
  kFinalSaveFailed = 2,
  // The checkpoint folder belongs to a newer generation: checkpoint::NewerGeneration.
  kStaleEpoch = 3,
  // A fault of this rank's node, not of the job.
  kNodeFault = 4,
  // A complete checkpoint from which a user told the job to continue does not fit the job. Or the
  // job file names a checkpoint after which no step is left to train.
  kStartDoesNotFit = 5,
};
// Returns the same error with a cause. Annotate keeps the cause.
absl::Status WithCause(absl::Status error, Cause cause);
Cause CauseOf(const absl::Status& error);

enum class FailureKind {
  kTransient,    // a restart may help
  kPermanent,    // a restart would end the same way: bad files, a loss that is not finite
  kConsequence,  // caused by the end of another rank
};
enum class Phase { kCreate, kRun };
// Returns the kind that follows from the cause; for an error without a cause, from the code.
FailureKind Classify(const absl::Status& error, Phase phase);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_
