// The units of a model that a setting selects.
#ifndef MUSTER_WORKER_MODELS_SELECT_UNITS_H_
#define MUSTER_WORKER_MODELS_SELECT_UNITS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/unit.h"

namespace muster::models {

// The pattern that stands for the blocks of a model, which are the outermost units whose name ends
// in a number ("transformer.h.3").
inline constexpr char kBlocks[] = "block";

// In forward order; never the root, and none without parameters. patterns: of units' names
// (common/glob), or kBlocks; empty: kBlocks. INVALID_ARGUMENT, with all such patterns: a pattern
// matches no unit with parameters. It is no error that a model has no blocks.
absl::StatusOr<std::vector<const Unit*>> SelectUnits(const Unit& root,
                                                     const std::vector<std::string>& patterns);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_SELECT_UNITS_H_
