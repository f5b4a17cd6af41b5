// The tensors of a model: checks for use by strategies, descriptions for layouts, and a comparison
// over all ranks, bit by bit.
#ifndef MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_
#define MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// INVALID_ARGUMENT, with the name, unless every parameter is a contiguous leaf on this device
// (nullopt: on any device). No two parameters may have the same name or tensor. A trainable
// parameter (which requires a gradient) must be float32 or float64; a frozen one may have any type.
absl::Status CheckParameters(const std::vector<models::Parameter>& parameters,
                             std::optional<c10::Device> device);

// INVALID_ARGUMENT, with the name, unless every buffer is contiguous, on this device, float32 or
// int64, and requires no gradient. No two buffers may have the same name.
absl::Status CheckBuffers(const std::vector<models::Buffer>& buffers, c10::Device device);

// Returns for each parameter whether it requires a gradient.
std::vector<bool> TrainedOf(const std::vector<models::Parameter>& parameters);

// Returns the descriptions of the parameters whose `trained` equals `trainable`. Parameters that
// are not trained must be float32, float64 or int64. indices: receives the indices of these
// parameters in `parameters`.
std::vector<layout::ParameterSpec> SpecsOf(const std::vector<models::Parameter>& parameters,
                                           const std::vector<bool>& trained, bool trainable,
                                           std::vector<size_t>* indices);

// Returns the number of elements of each parameter.
std::vector<int64_t> ElementsOf(const std::vector<models::Parameter>& parameters);

at::ScalarType ScalarTypeOf(layout::ElementType type);

std::vector<at::Tensor> TensorsOf(const std::vector<models::Buffer>& buffers);

// Compares tensors over all ranks. A collective: every rank passes the same names (for example
// "parameter 'w'") in the same order. DATA_LOSS on every rank if bits differ, with the name of the
// first tensor that differs and the ranks whose bits differ from rank 0.
absl::Status CheckEqualOnAllRanks(const std::vector<std::string>& names,
                                  const std::vector<at::Tensor>& tensors, int64_t step,
                                  comm::Communicator* communicator);

// Compares a model's parameters and buffers in this way.
absl::Status CheckModelEqualOnAllRanks(const std::vector<models::Parameter>& parameters,
                                       const std::vector<models::Buffer>& buffers, int64_t step,
                                       comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_
