// Moves values from the pieces of one plan to the pieces of another plan. A rank receives only
// values that it does not hold already.
#ifndef MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_
#define MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sharding/placement.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

struct Arrangement {
  // The pieces of each rank, the same on all ranks; offsets are ignored. Parameters that no rank
  // holds are not moved.
  sharding::Placement holders;
  // The pieces of this rank: a contiguous piece of any shape for each of its ranges.
  std::vector<Piece> held;
};

// Returns the bytes of one element of each parameter. types: of the parameters.
std::vector<int64_t> ElementBytes(const std::vector<at::ScalarType>& types);

// Fills to.held. element_bytes: from ElementBytes, the same on all ranks. A tensor of `to` may
// share memory with a tensor of `from` only if both hold the same elements at the same addresses.
//
// A collective if any value has to go to another rank. The exchange is done in rounds; two rounds
// are in flight at a time. In a round a rank sends at most round_bytes and receives at most
// round_bytes, but each pair of ranks moves at least one element. Rounds are small, so that their
// bytes stay in the cache.
//
// Returns the bytes that all ranks together send to other ranks. Errors: the communicator's;
// DATA_LOSS if no rank has values that `to` needs; INVALID_ARGUMENT if the pieces of this rank do
// not fit its placement.
absl::StatusOr<int64_t> MovePieces(const Arrangement& from, const Arrangement& to,
                                   const std::vector<int64_t>& element_bytes,
                                   comm::Communicator* communicator, comm::OpLabel label,
                                   int64_t round_bytes = 4 << 20);

// Returns the bytes that MovePieces would return. Pure.
absl::StatusOr<int64_t> BytesToMove(const sharding::Placement& from, const sharding::Placement& to,
                                    const std::vector<int64_t>& element_bytes);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_MOVE_PIECES_H_
