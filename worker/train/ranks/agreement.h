// Checks that all ranks have the same job, model and data before anything else depends on it
// (docs/roll-call.md).
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
// ranks differ, a second one of all their lines. `what` says for errors what the lines describe
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

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_AGREEMENT_H_
