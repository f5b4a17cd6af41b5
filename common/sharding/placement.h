// Placements of parameters: the elements that each holder has, and the moves from one placement to
// another. Pure.
//
// A holder is a rank, or a file of a checkpoint. Redistribute computes all movement of state
// between ranks, strategies, world sizes and files from two placements. Its cost is O(ranges),
// never parameters x holders.
#ifndef MUSTER_COMMON_SHARDING_PLACEMENT_H_
#define MUSTER_COMMON_SHARDING_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::sharding {

// Elements [begin, end) of the flattened parameter with the number `parameter`.
struct Range {
  int64_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;  // the beginning in the holder's own storage, in elements
  friend bool operator==(const Range&, const Range&) = default;
};

struct Placement {
  std::vector<int64_t> elements;            // of each parameter
  std::vector<std::vector<Range>> holders;  // by holder: disjoint ranges, none empty
};

// Every holder has all parameters, one after the other (ddp). holders: at least 1, also below.
Placement Replicated(const std::vector<int64_t>& elements, int holders);

// The concatenation of all parameters, cut into nearly even parts at multiples of `alignment`
// elements.
Placement CutEvenly(const std::vector<int64_t>& elements, int holders, int64_t alignment);

// The ranges of the parameters that are `chosen`, by number.
Placement Only(Placement placement, const std::vector<bool>& chosen);

// Checks that every element of every parameter has exactly one holder. INVALID_ARGUMENT: ranges
// that do not lie in their parameter. DATA_LOSS: elements without a holder or with several. Errors
// name parameters by `names` (by number if empty). They list at most 3 problems, and the number of
// the others.
absl::Status CheckComplete(const Placement& placement, const std::vector<std::string>& names = {});

// Elements [begin, end) of `parameter` go from one holder's storage to another's.
struct Move {
  int64_t from = 0;
  int64_t to = 0;
  int64_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t from_offset = 0;
  int64_t to_offset = 0;
  friend bool operator==(const Move&, const Move&) = default;
};

// The moves for all elements that `to` holds, ordered by (to, from, to_offset). The two placements
// may have different numbers and kinds of holders. Each element comes from the holder in `from`
// with the same number, if that holder has the element (so nothing is sent without need). Otherwise
// the element comes from its holder with the lowest number. INVALID_ARGUMENT: the parameters differ
// in number or elements, or ranges do not lie in their parameter. DATA_LOSS: `to` has elements
// without a holder in `from` (listed as above).
absl::StatusOr<std::vector<Move>> Redistribute(const Placement& from, const Placement& to,
                                               const std::vector<std::string>& names = {});

}  // namespace muster::sharding

#endif  // MUSTER_COMMON_SHARDING_PLACEMENT_H_
