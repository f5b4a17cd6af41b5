// A communicator whose operations are in a flight recorder.
#ifndef MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_

#include <cstddef>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"

namespace muster::comm {

// Passes everything on to `communicator`. An operation has begun before it is under way, and has
// ended once somebody has waited for it, also with an error. Both outlive this, and this outlives
// its works. channel: FlightRecorder's.
std::unique_ptr<Communicator> Recorded(Communicator* communicator, FlightRecorder* recorder,
                                       size_t channel);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_
