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

// What the job's optimizer keeps of each parameter, by the parameter's name.
using ImportedSlots = std::map<std::string, std::vector<ImportedSlot>>;

// INVALID_ARGUMENT with all problems, of which at most 3 are listed, unless each parameter in the
// file is one of the job's and has exactly its slots, each with the parameter's shape (or one
// element) and of a float type (a scalar: any number). Parameters that the file lacks are no
// problem.
absl::Status CheckImport(const optimizerfile::OptimizerSource& source,
                         const std::vector<manifest::ParameterRecord>& parameters,
                         const ImportedSlots& slots);

// What all ranks must find in the file: its parameters with their slots.
std::vector<jobspec::Line> LinesOf(const optimizerfile::OptimizerSource& source);

// Reads into the pieces of these slots that `state` holds what the source has of them; the others
// stay as they are. Reads only these ranges. The source is as CheckImport wants it.
void FillImported(const optimizerfile::OptimizerSource& source, const ImportedSlots& slots,
                  const State& state);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_
