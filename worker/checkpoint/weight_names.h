// Which tensors of a weights file are taken, and under which names. Pure.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/problems/problems.h"

namespace muster::checkpoint {

// From name to name, for tensors that are taken. A name may contain one '*', which stands for any
// characters (also none, also dots); then the new name contains one, too, in whose place the same
// characters stand. Everything else stands for itself.
using Renames = std::map<std::string, std::string>;

// For each of `names`, the tensors of a file, the name under which it is taken; nothing if it is
// not. `take`: patterns (common/glob) of the names in the file; empty: all are taken. Problems: a
// pattern or a rename that matches nothing, with a near one; two renames for one tensor; two
// tensors with one name afterwards.
std::vector<std::optional<std::string>> TakenNames(const std::vector<std::string>& names,
                                                   const std::vector<std::string>& take,
                                                   const Renames& renames, Problems* problems);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHT_NAMES_H_
