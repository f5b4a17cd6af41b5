// Gathers the sums that each rank has over its own pieces.
#ifndef MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_
#define MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// A collective. Returns `mine` of every rank, in rank order. Errors: the communicator's.
absl::StatusOr<std::vector<PartialSum>> GatherPartialSums(const PartialSum& mine, int64_t step,
                                                          comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_
