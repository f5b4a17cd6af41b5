// Fills an optimizer's state from a file that Python wrote (common/optimizerfile).
#ifndef MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/jobspec/lines.h"
#include "common/manifest/manifest.h"
#include "common/optimizerfile/optimizer_source.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// A kind of state that the job's optimizer keeps.
struct ImportedSlot {
  std::string name;
  bool scalar = false;
};

// INVALID_ARGUMENT with all problems, of which at most 3 are listed, unless each parameter in the
// file is one of the job's and has exactly these slots, each with the parameter's shape (or one
// element) and of a float type (a scalar: any number). Parameters that the file lacks are no
// problem.
absl::Status CheckImport(const optimizerfile::OptimizerSource& source,
                         const std::vector<manifest::ParameterRecord>& parameters,
                         const std::vector<ImportedSlot>& slots);

// What all ranks must find in the file: its parameters with their slots.
std::vector<jobspec::Line> LinesOf(const optimizerfile::OptimizerSource& source);

// Reads into the pieces that `state` holds of these slots what the source has of them; the others
// stay as they are. Reads only these ranges. The source is as CheckImport wants it.
void FillImported(const optimizerfile::OptimizerSource& source,
                  const std::vector<ImportedSlot>& slots, const State& state);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_IMPORTED_STATE_H_
