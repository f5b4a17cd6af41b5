// Errors that say in what the ranks differ, after a roll call has found that they do. All functions
// are collectives: all ranks have taken part in the same roll call and are at the same point of the
// program.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// `step` is the number of optimizer steps done. Each function returns the communicator's error if
// there is one.

// FAILED_PRECONDITION names the first parameter that some ranks want trained and others frozen.
absl::Status NameMaskDifference(const TrainedParameters& trained, int64_t step,
                                comm::Communicator* communicator);

// FAILED_PRECONDITION names the first collective, of those that rank 0 still remembers, that is
// different on another rank.
absl::Status NameCollectiveDifference(const comm::FlightRecorder& flight, int64_t step,
                                      comm::Communicator* communicator);

// Adds to `error` where the loss that is not finite came from. `here`: its origin on this rank;
// empty: it did not come from this rank.
absl::Status WithOrigin(const absl::Status& error, const std::string& here, int64_t step,
                        comm::Communicator* communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_
