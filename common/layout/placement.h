// Which holder has which elements of which parameters, and how to get from one such placement to
// another. Pure.
//
// A holder is a rank, or a file of a checkpoint. All movement of state between ranks, strategies,
// world sizes and files is computed by Redistribute from two placements. Its cost is O(ranges),
// never parameters x holders.
#ifndef MUSTER_COMMON_LAYOUT_PLACEMENT_H_
#define MUSTER_COMMON_LAYOUT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::layout {

// Elements [begin, end) of the flattened parameter with the number `parameter`.
struct Range {
  int64_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;  // where they begin in the holder's own storage, in elements
  friend bool operator==(const Range&, const Range&) = default;
};

struct Placement {
  std::vector<int64_t> elements;            // of each parameter
  std::vector<std::vector<Range>> holders;  // by holder: disjoint ranges, none empty
};

// Every holder has all parameters, one after the other (ddp). holders: at least 1, here and below.
Placement Replicated(const std::vector<int64_t>& elements, int holders);

// The concatenation of all parameters cut into nearly even parts, at multiples of `alignment`
// elements of it.
Placement CutEvenly(const std::vector<int64_t>& elements, int holders, int64_t alignment);

// The ranges of the parameters that are `chosen`, by number.
Placement Only(Placement placement, const std::vector<bool>& chosen);

// OK if every element of every parameter has exactly one holder. INVALID_ARGUMENT: ranges that do
// not lie in their parameter. DATA_LOSS: elements that have no holder or several. Errors name
// parameters by `names` (by number if it is empty), and list at most 3 problems with the number of
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

// The moves for everything that `to` holds. Each element is taken from one holder in `from`: from
// the holder with the same number if it has the element (so nothing is sent without need),
// otherwise from the holder with the lowest number that has it. Ordered by (to, from, to_offset).
// The two placements may have different numbers and kinds of holders. INVALID_ARGUMENT: the
// parameters differ in number or elements, or ranges do not lie in their parameter; DATA_LOSS: `to`
// has elements that no holder in `from` has (limited as above).
absl::StatusOr<std::vector<Move>> Redistribute(const Placement& from, const Placement& to,
                                               const std::vector<std::string>& names = {});

}  // namespace muster::layout

#endif  // MUSTER_COMMON_LAYOUT_PLACEMENT_H_
