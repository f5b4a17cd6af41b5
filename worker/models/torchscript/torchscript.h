// Models from TorchScript files (torch.jit.save), trained through their parameters
// (docs/reference/models.md).
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes the model of a file. spec: valid (common/jobspec). The initial values are those in the
// file. If the top module is a torch.nn.Sequential, its direct children are the units; otherwise
// the top module is one unit. A later error of the script becomes a ModelError that Forward throws.
// Errors name the file:
// - those of opening the file; DATA_LOSS: the file is cut off or damaged
// - INVALID_ARGUMENT: not a TorchScript file, code that runs while the file is loaded, or operators
//   or classes that are unknown or not allowed (allowed_operators.h)
// - INVALID_ARGUMENT: no parameters, parameters that are not float32, or an output of another shape
//   than the spec says
// - INVALID_ARGUMENT: a forward that changes values that no checkpoint contains, or that in
//   evaluation changes buffers or draws random numbers
absl::StatusOr<std::unique_ptr<Model>> CreateTorchscript(const v1::TorchscriptSpec& spec);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_
