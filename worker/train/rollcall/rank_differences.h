// Errors that say in what the ranks differ, for a roll call that has found a difference. All
// functions are collectives: all ranks have taken part in the same roll call and are at the same
// point of the program.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// `step`: optimizer steps done. Each function can also return the communicator's error.

// FAILED_PRECONDITION names the first parameter that only some ranks want trained.
absl::Status NameMaskDifference(const TrainedParameters& trained, int64_t step,
                                comm::Communicator* communicator);

// FAILED_PRECONDITION names the first collective of rank 0 that has another name on another rank.
// Only the newest collectives, which the flight recorder keeps, are compared.
absl::Status NameCollectiveDifference(const comm::FlightRecorder& flight, int64_t step,
                                      comm::Communicator* communicator);

// Returns `error` with the origin of the loss that is not finite. `here`: the origin on this rank;
// empty: the loss of this rank is finite.
absl::Status WithOrigin(const absl::Status& error, const std::string& here, int64_t step,
                        comm::Communicator* communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_RANK_DIFFERENCES_H_
