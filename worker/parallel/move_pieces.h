// Brings values that lie in pieces on the ranks to where another plan wants them. A rank sends what
// others want and do not have, and nothing that they have.
#ifndef MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_
#define MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/layout/placement.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct Arrangement {
  // What each rank holds, the same on all ranks; offsets mean nothing. Parameters that nobody holds
  // are not dealt with.
  layout::Placement holders;
  // What this rank holds of it: one piece for each of its ranges, of any shape, contiguous.
  std::vector<Piece> held;
};

// Of each parameter's elements, given their types.
std::vector<int64_t> ElementBytes(const std::vector<at::ScalarType>& types);

// Fills to.held. element_bytes: of each parameter's elements, the same on all ranks. A tensor of
// `to` shares no memory with one of `from`, unless both are of the same elements in the same place.
// A collective, where anything travels at all: in rounds in which a rank sends at most round_bytes
// and receives at most that, or one element, and two of which are on their way at a time. Small
// ones, so that what is sent and received does not leave the cache. The bytes that all ranks send
// to others. Errors: the communicator's; DATA_LOSS: nobody has what `to` wants; INVALID_ARGUMENT:
// pieces that are not the placements'.
absl::StatusOr<int64_t> MovePieces(const Arrangement& from, const Arrangement& to,
                                   const std::vector<int64_t>& element_bytes,
                                   comm::Communicator* communicator, comm::OpLabel label,
                                   int64_t round_bytes = 4 << 20);

// The same bytes without moving anything. Pure.
absl::StatusOr<int64_t> BytesToMove(const layout::Placement& from, const layout::Placement& to,
                                    const std::vector<int64_t>& element_bytes);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_
