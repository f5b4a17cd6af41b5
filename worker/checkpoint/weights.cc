#include "worker/checkpoint/weights.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/safetensors/tensor_set.h"
#include "common/status/status.h"
#include "worker/data/not_finite.h"

namespace muster::checkpoint {
namespace {

using models::Buffer;
using models::Parameter;
using models::WeightName;
using safetensors::DType;
using safetensors::Entry;
using safetensors::ShapeString;
using safetensors::StoredTensor;
using safetensors::TensorSet;

// A tensor of the model and the data that the files contain for it.
struct Target {
  std::string name;
  at::Tensor tensor;
  bool optional = false;
  std::vector<StoredTensor> sources;
};

std::vector<Target> TargetsOf(const models::Model& model) {
  std::vector<Target> targets;
  for (const Parameter& parameter : model.Parameters()) {
    targets.push_back({parameter.name, parameter.tensor});
  }
  for (const Buffer& buffer : model.Buffers()) {
    // Files of PyTorch before 0.4.1 do not contain it, and no result depends on it.
    const bool optional = absl::EndsWith(buffer.name, "num_batches_tracked");
    targets.push_back({buffer.name, buffer.tensor, optional});
  }
  return targets;
}

// The dtypes that a file may contain for a tensor, for errors; CanBecome checks one dtype.
const char* AllowedTypes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong ? "I64" : "F32, F16 or BF16";
}

bool CanBecome(DType dtype, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kLong) return dtype == DType::kI64;
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

at::Tensor Read(const StoredTensor& source, at::ScalarType type) {
  const DType dtype = source.entry->dtype;
  const at::ScalarType stored = dtype == DType::kF16    ? at::kHalf
                                : dtype == DType::kBF16 ? at::kBFloat16
                                : dtype == DType::kI64  ? at::kLong
                                                        : at::kFloat;
  const at::Tensor raw = at::empty(source.entry->shape, stored);
  char* to = static_cast<char*>(raw.data_ptr());
  activity::ByBlocks(source.entry->bytes(), [&](size_t offset, size_t bytes) {
    std::memcpy(to + offset, source.data() + offset, bytes);
    return true;
  });
  return raw.to(type);
}

std::optional<size_t> NotFinite(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return std::nullopt;
  return data::FirstNotFinite(tensor.const_data_ptr<float>(), tensor.numel());
}

// Notes each file's tensor with the target that it is for.
void FindSources(const TensorSet& set, const models::Model& model, std::vector<Target>* targets,
                 Problems* problems) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < targets->size(); ++i) by_name[(*targets)[i].name] = i;
  for (const StoredTensor& source : set.tensors()) {
    const WeightName name = model.ResolveWeight(source.name());
    if (name.kind == WeightName::Kind::kIgnored) continue;
    const auto found = by_name.find(name.parameter);
    if (name.kind == WeightName::Kind::kUnknown || found == by_name.end()) {
      problems->Add(absl::StrCat("unexpected ", set.Describe(source)));
      continue;
    }
    Target& target = (*targets)[found->second];
    target.sources.push_back(source);
    const Entry& entry = *source.entry;
    if (at::IntArrayRef(entry.shape) != target.tensor.sizes()) {
      problems->Add(absl::StrCat(set.Describe(source), ": expected the shape ",
                                 ShapeString(target.tensor.sizes().vec()), ", found ",
                                 ShapeString(entry.shape)));
    }
    if (!CanBecome(entry.dtype, target.tensor)) {
      problems->Add(absl::StrCat(set.Describe(source), ": expected ", AllowedTypes(target.tensor),
                                 ", found ", Name(entry.dtype)));
    }
  }
}

// The config.json with which transformers would open the weights.
std::string ConfigOf(const std::string& path) {
  return files::JoinPath(files::ParentDirectory(path), "config.json");
}

// The weights of transformers do not show all properties of their model; the config.json beside
// them does.
absl::Status CheckConfig(const std::string& path, const models::Model& model) {
  const size_t name = path.find_last_of('/') + 1;  // 0 without a folder
  if (!absl::StartsWith(path.substr(name), "model.safetensors")) return absl::OkStatus();
  const auto text = files::ReadFile(ConfigOf(path));
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  return Annotate(model.CheckHuggingFaceConfig(*text), ConfigOf(path));
}

}  // namespace

absl::Status LoadWeights(const std::string& path, const models::Model& model,
                         models::DeferredValues* deferred) {
  ASSIGN_OR_RETURN(TensorSet opened, TensorSet::Open(path));
  const auto files = std::make_shared<const TensorSet>(std::move(opened));
  const TensorSet& set = *files;
  const auto is_deferred = [&](const at::Tensor& tensor) {
    return deferred != nullptr && deferred->Has(tensor);
  };
  RETURN_IF_ERROR(CheckConfig(path, model));
  std::vector<Target> targets = TargetsOf(model);
  Problems problems;
  FindSources(set, model, &targets, &problems);
  for (const Target& target : targets) {
    if (target.sources.empty() && !target.optional) {
      problems.Add(absl::StrCat("missing '", target.name, "'"));
    }
  }
  const auto status = [&] { return problems.ToStatus(absl::StatusCode::kInvalidArgument, path); };
  RETURN_IF_ERROR(status());
  for (const auto& [name, tensor, optional, sources] : targets) {
    for (size_t i = 1; i < sources.size(); ++i) {
      const at::ScalarType type = tensor.scalar_type();
      if (Read(sources[0], type).equal(Read(sources[i], type))) continue;
      problems.Add(absl::StrCat(set.Describe(sources[0]), " and ", set.Describe(sources[i]),
                                " are one parameter of this model, but differ in the file"));
    }
    // A buffer that is not finite in the model itself (a mask of -inf, say) is not in its weights
    // either.
    if (sources.empty() || (!is_deferred(tensor) && NotFinite(tensor).has_value())) continue;
    const at::Tensor values = Read(sources[0], tensor.scalar_type());
    if (const auto wrong = NotFinite(values); wrong.has_value()) {
      problems.Add(absl::StrCat(set.Describe(sources[0]), ": expected finite numbers, found ",
                                values.const_data_ptr<float>()[*wrong], " as number ", *wrong));
    }
  }
  RETURN_IF_ERROR(status());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor, optional, sources] : targets) {
    if (sources.empty()) continue;
    if (is_deferred(tensor)) {
      deferred->Replace(tensor, [files, source = sources[0], type = tensor.scalar_type()] {
        return Read(source, type);
      });
    } else {
      tensor.copy_(Read(sources[0], tensor.scalar_type()));
    }
  }
  return absl::OkStatus();
}

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
