// A communicator that records its operations in a flight recorder.
#ifndef MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_

#include <cstddef>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/comm/flight/flight_recorder.h"

namespace muster::comm {

// Forwards every call to `communicator`. Records an operation as begun before it is issued, and as
// ended when a Wait for it has returned, with or without an error. `communicator` and `recorder`
// must outlive this object, and this object must outlive its works. channel: see FlightRecorder.
std::unique_ptr<Communicator> Recorded(Communicator* communicator, FlightRecorder* recorder,
                                       size_t channel);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_FLIGHT_RECORDED_COMMUNICATOR_H_
