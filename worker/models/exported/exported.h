// Models from folders that muster.export wrote: any PyTorch model, trained without Python
// (docs/how-to/own-model.md).
#ifndef MUSTER_WORKER_MODELS_EXPORTED_EXPORTED_H_
#define MUSTER_WORKER_MODELS_EXPORTED_EXPORTED_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes the model of a folder, for tokens of the length `context`. 0: of the length in the example
// of the export. The initial values are those in the folder, and in a scope of
// DeferredValues they stay there until they are needed. A parameter that was frozen when it was
// exported is frozen. A later error of an operator becomes a ModelError that Forward throws.
// Errors name the file: those of exported::OpenFolder; INVALID_ARGUMENT: inputs or an output that
// no data set and no loss fits.
absl::StatusOr<std::unique_ptr<Model>> CreateExported(const std::string& folder,
                                                      int64_t context = 0);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_EXPORTED_EXPORTED_H_
