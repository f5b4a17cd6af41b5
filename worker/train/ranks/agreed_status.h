// The result of a task of which each rank has done its part, the same on all ranks.
#ifndef MUSTER_WORKER_TRAIN_RANKS_AGREED_STATUS_H_
#define MUSTER_WORKER_TRAIN_RANKS_AGREED_STATUS_H_

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace muster::train {

// A collective: OK if `mine` is OK on all ranks; otherwise an error on all ranks, with the same
// message. It is the ranks' error if all have the same one (a file that nobody finds); else it has
// this rank's code, and says which ranks have which error ("rank 1: ...; rank 3: ..."). A rank that
// is OK itself has the first rank's error as ErrorOfOthers. IsAgreed is true of it. Payloads are
// not sent. `what` names the task, for the communicator's errors, which are returned to a rank
// whose own part is OK. Otherwise the rank keeps its own error: another rank may have learned of it
// and ended before this one was told.
absl::Status AgreedStatus(const absl::Status& mine, const char* what,
                          comm::Communicator& communicator);

// What another rank's error is to a rank that has none. Where a file's contents are at fault, which
// all ranks see, it is the same error. Otherwise it may be the other rank's node alone, which that
// rank reports: ABORTED.
absl::Status ErrorOfOthers(const absl::Status& error);

// Whether all ranks have this error, at the same point between two collectives.
bool IsAgreed(const absl::Status& error);
// Says so of an error.
absl::Status MarkAgreed(absl::Status error);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_AGREED_STATUS_H_
