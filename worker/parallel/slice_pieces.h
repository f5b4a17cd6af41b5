// The pieces of parameters that a rank updates. The parameters lie in flat groups, each of which is
// cut into one slice per rank.
#ifndef MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_
#define MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/sharding/placement.h"
#include "worker/comm/communicator.h"
#include "worker/layout/groups.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

// This rank's slice of one group.
struct Slice {
  at::Tensor parameters;
  at::Tensor gradients;  // undefined: the group is frozen
};

// Returns the pieces in the slices of `rank`, in ascending order of parameters; `bucket` of each
// piece is the number of its group. The members of the groups are indices of `specs`; indices[i] is
// the index of specs[i] in the model. The piece of a parameter without elements belongs to rank 0.
std::vector<Piece> PiecesOf(const std::vector<layout::Group>& groups,
                            const std::vector<layout::ParameterSpec>& specs,
                            const std::vector<size_t>& indices, const std::vector<Slice>& slices,
                            int rank, int world_size);

// Returns the pieces of all ranks, as a placement of the model's parameters. elements: of each.
sharding::Placement OwnersOf(const std::vector<layout::Group>& groups,
                             const std::vector<layout::ParameterSpec>& specs,
                             const std::vector<size_t>& indices, std::vector<int64_t> elements,
                             int world_size);

// Returns `mine` of every rank, in rank order: float64 [ranks, N] of float64 [N], on the
// communicator's device. `mine`: sums over the rank's pieces. A collective. Errors: the
// communicator's.
absl::StatusOr<at::Tensor> GatherPieceSums(const at::Tensor& mine, int64_t step,
                                           comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_
