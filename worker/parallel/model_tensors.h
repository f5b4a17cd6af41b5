// The tensors of a model as strategies use them: the checks that they must pass, their descriptions
// for layouts, and whether all ranks hold the same ones, bit by bit.
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
// (nullopt: on any) whose name and tensor no other parameter has. A trainable parameter (one that
// requires a gradient) must be float32 or float64; a frozen one may have any type.
absl::Status CheckParameters(const std::vector<models::Parameter>& parameters,
                             std::optional<c10::Device> device);

// INVALID_ARGUMENT, with the name, unless every buffer is contiguous, on this device, float32 or
// int64, requires no gradient, and has a name that no other buffer has.
absl::Status CheckBuffers(const std::vector<models::Buffer>& buffers, c10::Device device);

// Which of the parameters require a gradient.
std::vector<bool> TrainedOf(const std::vector<models::Parameter>& parameters);

// The descriptions of the parameters whose `trained` is `trainable`; those that are not trained
// must be float32, float64 or int64. indices: receives their indices in `parameters`.
std::vector<layout::ParameterSpec> SpecsOf(const std::vector<models::Parameter>& parameters,
                                           const std::vector<bool>& trained, bool trainable,
                                           std::vector<size_t>* indices);

// The number of elements of each parameter.
std::vector<int64_t> ElementsOf(const std::vector<models::Parameter>& parameters);

at::ScalarType ScalarTypeOf(layout::ElementType type);

std::vector<at::Tensor> TensorsOf(const std::vector<models::Buffer>& buffers);

// A collective: every rank calls it with the same names (such as "parameter 'w'") in the same
// order. If bits differ, it returns DATA_LOSS on every rank, with the name of the first tensor that
// differs and the ranks whose bits differ from those of rank 0.
absl::Status CheckEqualOnAllRanks(const std::vector<std::string>& names,
                                  const std::vector<at::Tensor>& tensors, int64_t step,
                                  comm::Communicator* communicator);

// The same for a model's parameters and buffers.
absl::Status CheckModelEqualOnAllRanks(const std::vector<models::Parameter>& parameters,
                                       const std::vector<models::Buffer>& buffers, int64_t step,
                                       comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_MODEL_TENSORS_H_
