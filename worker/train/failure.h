// What an error of a session means for the job.
#ifndef MUSTER_WORKER_TRAIN_FAILURE_H_
#define MUSTER_WORKER_TRAIN_FAILURE_H_

#include "absl/status/status.h"

namespace muster::train {

// What the coordinator is to know of an error beyond its text. Values travel
// (v1::WorkerFailure.Kind).
enum class Cause {
  kNone = 0,
  // None of the job's checkpoints can be read: it waits for a person.
  kCheckpointsUnreadable = 1,
  // Training is done, and its last checkpoint or its export could not be written: it is not done
  // anew.
  kFinalSaveFailed = 2,
  // The checkpoint folder has a newer generation: checkpoint::NewerGeneration.
  kStaleEpoch = 3,
  // This rank's node is at fault, not the job.
  kNodeFault = 4,
  // The checkpoint in the directory that somebody told the job to go on from is whole, and does not
  // fit the job.
  kStartDoesNotFit = 5,
};
// The same error with a cause, which Annotate keeps.
absl::Status WithCause(absl::Status error, Cause cause);
Cause CauseOf(const absl::Status& error);

enum class FailureKind {
  kTransient,    // starting over may help
  kPermanent,    // starting over would end the same way: bad files, a loss that is not finite
  kConsequence,  // another rank's end caused it
};
enum class Phase { kCreate, kRun };
// By its cause, where it has one; else by its code.
FailureKind Classify(const absl::Status& error, Phase phase);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_FAILURE_H_
