// How ranks agree: that they have the same job, model and data before anything else depends on it
// (docs/internals/roll-call.md), and on the results of what each has done.
#ifndef MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_
#define MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/jobspec/changes.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace muster::train {

// A collective that compares `lines` on all ranks: an all-gather of 16 bytes per rank and, if the
// ranks differ, all their lines. `what` says for errors what the lines describe
// ("the job"). Errors: FAILED_PRECONDITION, which names for each rank that differs from rank 0 (at
// most three ranks, and how many more there are) the first path at which it differs and the values
// of both ranks; the communicator's, for example that a peer has already ended because of this
// difference.
absl::Status AgreeOn(const std::string& what, const std::vector<jobspec::Line>& lines,
                     comm::Communicator* communicator);

// Describes the first difference: "optimizer.adamw.lr: rank 0 has 0.1, rank 2 has 0.2"; "" if there
// is none. Pure.
std::string NameDifference(const std::vector<jobspec::Line>& of_rank_0,
                           const std::vector<jobspec::Line>& others, int rank);

// One line for each parameter and buffer, in the model's order: its name, shape and type.
std::vector<jobspec::Line> LinesOf(const models::Model& model);

// ---- The result of a task of which each rank has done its part, the same on all ranks.

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

#endif  // MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_
