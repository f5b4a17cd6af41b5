// The result of a task of which each rank has done its part, the same on all ranks.
#ifndef MUSTER_WORKER_TRAIN_AGREED_STATUS_H_
#define MUSTER_WORKER_TRAIN_AGREED_STATUS_H_

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace muster::train {

// A collective: OK if `mine` is OK on all ranks; otherwise one error, the same on all ranks. It is
// the ranks' error if all have the same one (a file that nobody finds); else it has the code of the
// first rank with an error, and says which ranks have which ("rank 1: ...; rank 3: ..."). Payloads
// are not sent. `what` names the task, for the communicator's errors, which are returned, too.
absl::Status AgreedStatus(const absl::Status& mine, const char* what,
                          comm::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_AGREED_STATUS_H_
