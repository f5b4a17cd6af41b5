// What a rank updates where parameters lie in flat groups cut into one slice per rank.
#ifndef MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_
#define MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_

#include <cstddef>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/layout/groups.h"
#include "worker/layout/placement.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// This rank's slice of one group.
struct Slice {
  at::Tensor parameters;
  at::Tensor gradients;  // undefined: frozen
};

// The pieces of `rank` in its slices of the groups, which are over `specs`; indices[i]: which
// parameter of the model specs[i] is. By rising parameter; one of an empty parameter is rank 0's.
std::vector<Piece> PiecesOf(const std::vector<layout::Group>& groups,
                            const std::vector<layout::ParameterSpec>& specs,
                            const std::vector<size_t>& indices, const std::vector<Slice>& slices,
                            int rank, int world_size);

// The same of all ranks, over all the model's parameters: `elements` of each.
layout::Placement OwnersOf(const std::vector<layout::Group>& groups,
                           const std::vector<layout::ParameterSpec>& specs,
                           const std::vector<size_t>& indices, std::vector<int64_t> elements,
                           int world_size);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SLICE_PIECES_H_
