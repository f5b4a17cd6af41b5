// The choice of the tensors of a weights file, and their new names. Pure.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/problems/problems.h"

namespace muster::checkpoint {

// A map from name to new name, for tensors that are taken. A name may contain one '*', which stands
// for any characters (also none, also dots). Then the new name contains one '*', too, which stands
// for the same characters. All other characters stand for themselves.
using Renames = std::map<std::string, std::string>;

// Returns the new name of each tensor in `names`, or nothing if the tensor is not taken. `take`:
// patterns (common/glob) of the names in the file; empty: all are taken. Problems:
// - a pattern or a rename that matches nothing, with a similar name;
// - two renames for one tensor;
// - two tensors with the same new name.
std::vector<std::optional<std::string>> TakenNames(const std::vector<std::string>& names,
                                                   const std::vector<std::string>& take,
                                                   const Renames& renames, Problems* problems);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_
