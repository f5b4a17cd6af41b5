// The errors that name in what ranks differ, once a roll call has found that they do. All of these
// are collectives: all ranks have taken part in the same roll call, and are at the same point.
#ifndef MUSTER_WORKER_TRAIN_RANK_DIFFERENCES_H_
#define MUSTER_WORKER_TRAIN_RANK_DIFFERENCES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

// `step` is the number of optimizer steps done. Each gives the communicator's error where it has
// one.

// FAILED_PRECONDITION: the first parameter that the ranks do not all want trained, or all frozen.
absl::Status NameMaskDifference(const TrainedParameters& trained, int64_t step,
                                comm::Communicator* communicator);

// FAILED_PRECONDITION: the first collective, of those that rank 0 still knows, that another rank
// has called otherwise.
absl::Status NameCollectiveDifference(const comm::FlightRecorder& flight, int64_t step,
                                      comm::Communicator* communicator);

// `error`, with where the loss that is not finite came from. here: of this rank; empty: not from
// here.
absl::Status WithOrigin(const absl::Status& error, const std::string& here, int64_t step,
                        comm::Communicator* communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANK_DIFFERENCES_H_
