// A communicator whose operations are recorded.
#ifndef MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_

#include <memory>

#include "worker/comm/communicator.h"
#include "worker/trace/recorder.h"

namespace muster::comm {

// Forwards every call to `communicator`. While the recorder is on, it records a span for each
// operation, from its start until a Wait for it has returned, with the size of its input in bytes.
// `communicator` and the recorder must outlive this object. Threading: the recorder's thread issues
// operations and waits for them.
std::unique_ptr<Communicator> Traced(Communicator* communicator, trace::Recorder* recorder);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
