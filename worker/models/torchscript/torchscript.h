// Models from TorchScript files (torch.jit.save), trained through their parameters
// (docs/reference/models.md).
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: valid (common/jobspec). The initial values are those in the file.
// The top module's direct children are the units where it is a torch.nn.Sequential of them, else it
// is one unit. Errors name the file: those of opening it; DATA_LOSS: cut off or damaged;
// INVALID_ARGUMENT: not a TorchScript file, operators or classes that LibTorch does not have or
// that are not allowed (allowed_operators.h), code that runs while the file is loaded, no
// parameters, tensors that are not float32 (parameters), an output of another shape than the spec
// says, a forward that changes values that no checkpoint contains, or one that in evaluation
// changes buffers or draws random numbers. An error of the script later becomes a ModelError that
// Forward throws.
absl::StatusOr<std::unique_ptr<Model>> CreateTorchscript(const v1::TorchscriptSpec& spec);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_TORCHSCRIPT_H_
