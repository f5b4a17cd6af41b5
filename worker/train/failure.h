// What an error of a session means for the job.
#ifndef MUSTER_WORKER_TRAIN_FAILURE_H_
#define MUSTER_WORKER_TRAIN_FAILURE_H_

#include "absl/status/status.h"

namespace muster::train {

enum class FailureKind {
  kTransient,    // starting over may help
  kPermanent,    // starting over would end the same way: bad files, a loss that is not finite
  kConsequence,  // another rank's end caused it
};
enum class Phase { kCreate, kRun };
FailureKind Classify(const absl::Status& error, Phase phase);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_FAILURE_H_
