// A communicator whose operations are recorded.
#ifndef MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_

#include <memory>

#include "worker/comm/communicator.h"
#include "worker/trace/recorder.h"

namespace muster::comm {

// Passes everything on to `communicator`. While the recorder is on, each operation is a span from
// when it is under way until somebody has waited for it, with the bytes of what goes in; both
// outlive this. Threading: the recorder's thread issues and waits.
std::unique_ptr<Communicator> Traced(Communicator* communicator, trace::Recorder* recorder);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_TRACED_TRACED_COMMUNICATOR_H_
