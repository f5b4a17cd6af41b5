// What an error of a session means for the job.
#ifndef MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_
#define MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_

#include "absl/status/status.h"

namespace muster::train {

// What the coordinator must know about an error in addition to its text. The values are sent
// (v1::WorkerFailure.Kind).
enum class Cause {
  kNone = 0,
  // None of the job's checkpoints can be read: the job waits for a person.
  kCheckpointsUnreadable = 1,
  // Training is done, but its last checkpoint or its export could not be written. Training is not
  // repeated.
  kFinalSaveFailed = 2,
  // The checkpoint folder has a newer generation: checkpoint::NewerGeneration.
  kStaleEpoch = 3,
  // This rank's node is at fault, not the job.
  kNodeFault = 4,
  // A user told the job to continue from a checkpoint that is complete but does not fit the job, or
  // the job file names one after which nothing is left to train.
  kStartDoesNotFit = 5,
};
// The same error with a cause, which Annotate keeps.
absl::Status WithCause(absl::Status error, Cause cause);
Cause CauseOf(const absl::Status& error);

enum class FailureKind {
  kTransient,    // a restart may help
  kPermanent,    // a restart would end the same way: bad files, a loss that is not finite
  kConsequence,  // caused by the end of another rank
};
enum class Phase { kCreate, kRun };
// Decides by the cause if the error has one, otherwise by the code.
FailureKind Classify(const absl::Status& error, Phase phase);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_FAILURE_H_
