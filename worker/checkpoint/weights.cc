#include "worker/checkpoint/weights.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

using models::Buffer;
using models::Parameter;
using safetensors::DType;
using safetensors::Entry;

// The config.json with which transformers would open the weights.
std::string ConfigOf(const std::string& path) {
  return files::JoinPath(files::ParentDirectory(path), "config.json");
}

}  // namespace

absl::Status WriteWeights(const std::string& path, const std::vector<Parameter>& parameters,
                          const std::vector<Buffer>& buffers, const safetensors::Metadata& metadata,
                          const BeforeRead& before_read) {
  struct Stored {
    Entry entry;
    at::Tensor tensor;
    std::optional<size_t> parameter;  // its index
  };
  std::vector<Stored> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    tensors.push_back({{name, DType::kF32, tensor.sizes().vec()}, tensor, i});
  }
  for (const auto& [name, tensor] : buffers) {
    const DType dtype = tensor.scalar_type() == at::kLong ? DType::kI64 : DType::kF32;
    tensors.push_back({{name, dtype, tensor.sizes().vec()}, tensor});
  }
  // Wide numbers first: readers may want each at a multiple of its size.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Stored& a, const Stored& b) {
    return safetensors::ElementSize(a.entry.dtype) > safetensors::ElementSize(b.entry.dtype);
  });
  std::vector<Entry> entries;
  for (const Stored& stored : tensors) entries.push_back(stored.entry);
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan,
                   safetensors::Plan(std::move(entries), metadata));
  ASSIGN_OR_RETURN(const auto writer, files::HashingWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  for (const auto& [entry, tensor, parameter] : tensors) {
    if (before_read && parameter.has_value()) RETURN_IF_ERROR(before_read(*parameter));
    const at::ScalarType type = entry.dtype == DType::kI64 ? at::kLong : at::kFloat;
    // Only now, because its memory may have changed when it was gathered.
    const at::Tensor values = tensor.detach().to(at::kCPU, type).contiguous();
    RETURN_IF_ERROR(writer->Append(values.const_data_ptr(), values.nbytes()));
  }
  return writer->Finish().status();
}

absl::Status WriteConfig(const std::string& path, const models::Model& model) {
  const std::string config = model.HuggingFaceConfig();
  if (config.empty()) return absl::OkStatus();
  return files::WriteAtomically(ConfigOf(path), config);
}

absl::Status SaveWeights(const std::string& path, const std::vector<Parameter>& parameters,
                         const std::vector<Buffer>& buffers) {
  RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
  const std::string temporary = path + ".tmp";
  RETURN_IF_ERROR(WriteWeights(temporary, parameters, buffers, {{"format", "pt"}}));
  const absl::Status renamed = files::RenameDurably(temporary, path);
  if (!renamed.ok()) unlink(temporary.c_str());
  return renamed;
}

absl::Status ExportModel(const std::string& path, const models::Model& model) {
  RETURN_IF_ERROR(SaveWeights(path, model.Parameters(), model.Buffers()));
  return WriteConfig(path, model);
}

}  // namespace muster::checkpoint
