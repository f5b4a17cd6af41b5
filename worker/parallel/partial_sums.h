// Sums over a rank's own pieces, from every rank.
#ifndef MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_
#define MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// A collective: `mine` of each rank, in rank order. Errors: the communicator's.
absl::StatusOr<std::vector<PartialSum>> GatherPartialSums(const PartialSum& mine, int64_t step,
                                                          comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_PARTIAL_SUMS_H_
