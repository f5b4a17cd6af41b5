// Selection of units of a model by patterns.
#ifndef MUSTER_WORKER_MODELS_SELECT_UNITS_H_
#define MUSTER_WORKER_MODELS_SELECT_UNITS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/unit.h"

namespace muster::models {

// The pattern for the blocks of a model: the outermost units whose name ends in a number
// ("transformer.h.3").
inline constexpr char kBlocks[] = "block";

// Returns the selected units in forward order; never the root or a unit without parameters.
// patterns: of units' names (common/glob), or kBlocks; empty: kBlocks. INVALID_ARGUMENT if patterns
// match no unit with parameters, with all these patterns. A model without blocks is no error.
absl::StatusOr<std::vector<const Unit*>> SelectUnits(const Unit& root,
                                                     const std::vector<std::string>& patterns);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SELECT_UNITS_H_
