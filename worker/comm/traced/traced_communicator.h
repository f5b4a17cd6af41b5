// A communicator that records its operations in a trace.
#ifndef MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_

#include <memory>

#include "worker/comm/communicator.h"
#include "worker/trace/recorder.h"

namespace muster::comm {

// Forwards every call to `communicator`. While the recorder is on, a span is recorded for each
// operation, with the bytes of its input. The span lasts from the start of the operation until a
// Wait for the operation has returned. `communicator` and the recorder must outlive this object.
// Threading: the thread of the recorder issues operations and waits for them.
std::unique_ptr<Communicator> Traced(Communicator* communicator, trace::Recorder* recorder);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
