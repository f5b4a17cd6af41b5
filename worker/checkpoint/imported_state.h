// Fills an optimizer's state from a file that Python wrote (common/optimizerfile).
#ifndef MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/jobspec/changes.h"
#include "common/manifest/manifest.h"
#include "common/optimizerfile/optimizer_source.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// A kind of state that the job's optimizer keeps.
struct ImportedSlot {
  std::string name;
  bool scalar = false;
};

// The slots that the job's optimizer keeps of each parameter, by the parameter's name.
using ImportedSlots = std::map<std::string, std::vector<ImportedSlot>>;

// Checks that the file fits the job:
// - each parameter in the file is a parameter of the job, with exactly its slots;
// - each slot has the parameter's shape (or one element) and a float type (a scalar: any number).
// INVALID_ARGUMENT: all problems, of which at most 3 are listed. Parameters that the file lacks are
// no problem.
absl::Status CheckImport(const optimizerfile::OptimizerSource& source,
                         const std::vector<manifest::ParameterRecord>& parameters,
                         const ImportedSlots& slots);

// The lines on which all ranks must agree: the file's parameters with their slots.
std::vector<jobspec::Line> LinesOf(const optimizerfile::OptimizerSource& source);

// Fills the pieces of these slots that `state` holds from the source, as far as the source has
// them. Other pieces stay unchanged. Reads only these ranges. Requires a source for which
// CheckImport is OK.
void FillImported(const optimizerfile::OptimizerSource& source, const ImportedSlots& slots,
                  const State& state);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_
