// Whether all ranks have the same job, model and data before anything depends on it.
// docs/roll-call.md.
#ifndef MUSTER_WORKER_TRAIN_AGREEMENT_H_
#define MUSTER_WORKER_TRAIN_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/jobspec/lines.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace muster::train {

// A collective: an all-gather of 16 bytes a rank; where the ranks differ, one more of all their
// lines. what: of what these are the lines, for errors ("the job"). Errors: FAILED_PRECONDITION
// naming, for each rank that differs from rank 0 (three of them at most, and how many more), the
// first path at which it does, and what each of the two has there; those of the communicator, among
// them that a peer has already ended with this difference.
absl::Status AgreeOn(const std::string& what, const std::vector<jobspec::Line>& lines,
                     comm::Communicator* communicator);

// The first difference: "optimizer.adamw.lr: rank 0 has 0.1, rank 2 has 0.2"; "" where there is
// none. Pure.
std::string NameDifference(const std::vector<jobspec::Line>& of_rank_0,
                           const std::vector<jobspec::Line>& others, int rank);

// Names, shapes and types of parameters and buffers, in their order.
std::vector<jobspec::Line> LinesOf(const models::Model& model);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_AGREEMENT_H_
