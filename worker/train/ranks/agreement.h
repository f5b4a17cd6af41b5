// Agreement of the ranks: on job, model and data, before other code depends on them
// (docs/internals/roll-call.md), and on the result of a task of which each rank has done its part.
#ifndef MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_
#define MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/jobspec/changes.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace muster::train {

// Compares `lines` on all ranks. A collective: an all-gather of 16 bytes per rank and, if the ranks
// differ, of all their lines. `what`: a name of the lines for errors ("the job"). Errors:
// - FAILED_PRECONDITION if a rank differs from rank 0. The message has the first different path and
//   both values for at most three such ranks, and the number of further ranks.
// - The communicator's, for example because a peer has already ended with this error.
absl::Status AgreeOn(const std::string& what, const std::vector<jobspec::Line>& lines,
                     comm::Communicator* communicator);

// Returns the first difference: "optimizer.adamw.lr: rank 0 has 0.1, rank 2 has 0.2"; "" if there
// is none. Pure.
std::string NameDifference(const std::vector<jobspec::Line>& of_rank_0,
                           const std::vector<jobspec::Line>& others, int rank);

// Returns one line for each parameter and buffer, in the model's order: name, shape and type. Then
// a line with the hash of the model's files, if there is one.
std::vector<jobspec::Line> LinesOf(const models::Model& model);

// ---- The result of a task of which each rank has done its part.

// Returns OK if `mine` is OK on all ranks, otherwise an error on every rank, of which IsAgreed is
// true. A collective. `what` names the task in the communicator's errors. Payloads are not sent.
// - All ranks have the same error (a file that no rank finds): every rank returns this error.
// - Ranks differ: the message says which ranks have which error ("rank 1: ...; rank 3: ..."). A
//   rank with an error keeps its own code. A rank without an error returns ErrorOfOthers with the
//   code of the first failed rank.
// - The communicator fails: a rank with an error returns `mine`, because another rank may have
//   heard of `mine` and ended. Other ranks return the communicator's error. IsAgreed is false.
absl::Status AgreedStatus(const absl::Status& mine, const char* what,
                          comm::Communicator& communicator);

// Returns the error that a rank without a fault of its own has because of another rank's `error`. A
// code about the contents of a file, which all ranks see, stays. Other codes become ABORTED:
// perhaps only the other rank's node is at fault, and the other rank reports the fault.
absl::Status ErrorOfOthers(const absl::Status& error);

// Whether all ranks have this error at the same point between two collectives.
bool IsAgreed(const absl::Status& error);
// Marks an error so that IsAgreed is true of the error.
absl::Status MarkAgreed(absl::Status error);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_
