// The tensors of a model that a strategy deals with: what they must be like, and how a layout sees
// them.
#ifndef MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_
#define MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// INVALID_ARGUMENT, with the name, unless every parameter is a contiguous leaf on the CPU, with a
// name and a tensor of its own; a trainable one (it requires a gradient) float32 or float64. Frozen
// ones may be of any type.
absl::Status CheckParameters(const std::vector<models::Parameter>& parameters);

// INVALID_ARGUMENT, with the name, unless every buffer is contiguous, on the CPU, float32 or int64,
// needs no gradient, and has a name of its own.
absl::Status CheckBuffers(const std::vector<models::Buffer>& buffers);

// Which of the parameters require a gradient.
std::vector<bool> TrainedOf(const std::vector<models::Parameter>& parameters);

// Of the parameters that are `trained`; `indices`: which of `parameters` they are.
std::vector<layout::ParameterSpec> TrainableSpecs(const std::vector<models::Parameter>& parameters,
                                                  const std::vector<bool>& trained,
                                                  std::vector<size_t>* indices);

// The same of the others, which are float32, float64 or int64.
std::vector<layout::ParameterSpec> FrozenSpecs(const std::vector<models::Parameter>& parameters,
                                               const std::vector<bool>& trained,
                                               std::vector<size_t>* indices);

// Of each parameter.
std::vector<int64_t> ElementsOf(const std::vector<models::Parameter>& parameters);

at::ScalarType ScalarTypeOf(layout::ElementType type);

std::vector<at::Tensor> TensorsOf(const std::vector<models::Buffer>& buffers);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_
