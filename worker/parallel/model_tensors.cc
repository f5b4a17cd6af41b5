#include "worker/parallel/model_tensors.h"

#include <unordered_set>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::parallel {

namespace {

std::string IsElsewhere(c10::Device found, c10::Device expected) {
  const auto name = [](c10::Device device) {
    return device.is_cpu() ? std::string("the CPU") : device.str();
  };
  return absl::StrCat("is on ", name(found), ", not on ", name(expected));
}

}  // namespace

absl::Status CheckParameters(const std::vector<models::Parameter>& parameters,
                             std::optional<c10::Device> device) {
  std::unordered_set<std::string> names;
  std::unordered_set<const void*> tensors;
  for (const auto& [name, tensor] : parameters) {
    const auto refuse = [&name = name](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' ", why));
    };
    if (!tensor.defined()) return refuse("is undefined");
    if (device.has_value() && tensor.device() != *device) {
      return refuse(IsElsewhere(tensor.device(), *device));
    }
    if (!tensor.is_leaf()) return refuse("is no leaf");
    if (!tensor.is_contiguous()) return refuse("is not contiguous");
    if (tensor.requires_grad() && tensor.scalar_type() != at::kFloat &&
        tensor.scalar_type() != at::kDouble) {
      return refuse(absl::StrCat("is trainable and ", c10::toString(tensor.scalar_type()),
                                 ", not float32 or float64"));
    }
    if (!names.insert(name).second) return refuse("appears twice");
    if (!tensors.insert(tensor.unsafeGetTensorImpl()).second) {
      return refuse("is the same tensor as another one");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const std::vector<models::Buffer>& buffers, c10::Device device) {
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : buffers) {
    const auto refuse = [&name = name](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("buffer '", name, "' ", why));
    };
    if (!tensor.defined()) return refuse("is undefined");
    if (tensor.device() != device) return refuse(IsElsewhere(tensor.device(), device));
    if (tensor.requires_grad()) return refuse("requires a gradient");
    if (!tensor.is_contiguous()) return refuse("is not contiguous");
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kLong) {
      return refuse(
          absl::StrCat("is ", c10::toString(tensor.scalar_type()), ", not float32 or int64"));
    }
    if (!names.insert(name).second) return refuse("appears twice");
  }
  return absl::OkStatus();
}

namespace {

layout::ElementType ElementTypeOf(at::ScalarType type) {
  if (type == at::kDouble) return layout::ElementType::kFloat64;
  return type == at::kLong ? layout::ElementType::kInt64 : layout::ElementType::kFloat32;
}

}  // namespace

std::vector<layout::ParameterSpec> SpecsOf(const std::vector<models::Parameter>& parameters,
                                           const std::vector<bool>& trained, bool trainable,
                                           std::vector<size_t>* indices) {
  std::vector<layout::ParameterSpec> specs;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    if (trained[i] != trainable) continue;
    specs.push_back({.name = name,
                     .elements = tensor.numel(),
                     .type = ElementTypeOf(tensor.scalar_type()),
                     .trainable = trainable});
    indices->push_back(i);
  }
  return specs;
}

std::vector<bool> TrainedOf(const std::vector<models::Parameter>& parameters) {
  std::vector<bool> trained;
  for (const auto& [name, tensor] : parameters) trained.push_back(tensor.requires_grad());
  return trained;
}

std::vector<int64_t> ElementsOf(const std::vector<models::Parameter>& parameters) {
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : parameters) elements.push_back(tensor.numel());
  return elements;
}

at::ScalarType ScalarTypeOf(layout::ElementType type) {
  switch (type) {
    case layout::ElementType::kFloat32:
      return at::kFloat;
    case layout::ElementType::kFloat64:
      return at::kDouble;
    case layout::ElementType::kInt64:
      return at::kLong;
  }
  return at::kFloat;
}

std::vector<at::Tensor> TensorsOf(const std::vector<models::Buffer>& buffers) {
  std::vector<at::Tensor> tensors;
  for (const models::Buffer& buffer : buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

absl::Status CheckEqualOnAllRanks(const std::vector<std::string>& names,
                                  const std::vector<at::Tensor>& tensors, int64_t step,
                                  comm::Communicator* communicator) {
  const int64_t count = tensors.size();
  const int world_size = communicator->world_size();
  if (world_size == 1) return absl::OkStatus();
  const at::Tensor mine = device::Hashes(communicator->device(), tensors);
  const at::Tensor all = at::empty({world_size * count}, mine.options());
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {"parameter hashes", step})->Wait());

  const at::Tensor table = device::On(at::kCPU, all);
  const auto hashes = device::HostValues<int64_t>(table);
  for (int64_t i = 0; i < count; ++i) {
    std::string differing;
    int found = 0;
    for (int rank = 1; rank < world_size; ++rank) {
      if (hashes[rank * count + i] == hashes[i]) continue;
      if (++found <= 3) absl::StrAppend(&differing, found > 1 ? ", " : "", rank);
    }
    if (found == 0) continue;
    if (found > 3) absl::StrAppend(&differing, " and ", found - 3, " more");
    return absl::DataLossError(
        absl::StrCat("step ", step, ": ", names[i], " differs from rank 0's on rank ", differing));
  }
  return absl::OkStatus();
}

absl::Status CheckModelEqualOnAllRanks(const std::vector<models::Parameter>& parameters,
                                       const std::vector<models::Buffer>& buffers, int64_t step,
                                       comm::Communicator* communicator) {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) {
    names.push_back(absl::StrCat("parameter '", name, "'"));
    tensors.push_back(tensor);
  }
  for (const auto& [name, tensor] : buffers) {
    names.push_back(absl::StrCat("buffer '", name, "'"));
    tensors.push_back(tensor);
  }
  return CheckEqualOnAllRanks(names, tensors, step, communicator);
}

}  // namespace muster::parallel
