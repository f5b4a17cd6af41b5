#include "worker/checkpoint/weights.h"

#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

using models::Parameter;
using models::WeightName;
using safetensors::DType;
using safetensors::Entry;
using safetensors::ShapeString;

std::optional<at::ScalarType> FloatType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

at::Tensor ReadAsFloat(const safetensors::File& file, const Entry& entry) {
  const at::Tensor raw = at::empty(entry.shape, *FloatType(entry.dtype));
  std::memcpy(raw.data_ptr(), file.data(entry), entry.bytes());
  return raw.to(at::kFloat);
}

// The file's entries by the parameter that they are for.
using Sources = std::map<std::string, std::vector<const Entry*>>;

Sources FindSources(const safetensors::File& file, const NameResolver& resolve,
                    const std::map<std::string, at::Tensor>& wanted, Problems* problems) {
  Sources sources;
  for (const Entry& entry : file.header().entries) {
    const WeightName name = resolve(entry.name);
    if (name.kind == WeightName::Kind::kIgnored) continue;
    const auto parameter = wanted.find(name.parameter);
    if (name.kind == WeightName::Kind::kUnknown || parameter == wanted.end()) {
      problems->Add(absl::StrCat("unexpected '", entry.name, "'"));
      continue;
    }
    sources[name.parameter].push_back(&entry);
    if (at::IntArrayRef(entry.shape) != parameter->second.sizes()) {
      problems->Add(absl::StrCat("'", entry.name, "': expected the shape ",
                                 ShapeString(parameter->second.sizes().vec()), ", found ",
                                 ShapeString(entry.shape)));
    }
    if (!FloatType(entry.dtype).has_value()) {
      problems->Add(
          absl::StrCat("'", entry.name, "': expected F32, F16 or BF16, found ", Name(entry.dtype)));
    }
  }
  return sources;
}

}  // namespace

absl::Status LoadWeights(const std::string& path, const std::vector<Parameter>& parameters,
                         const NameResolver& resolve) {
  ASSIGN_OR_RETURN(const safetensors::File file, safetensors::File::Open(path));
  std::map<std::string, at::Tensor> wanted;
  for (const Parameter& parameter : parameters) wanted[parameter.name] = parameter.tensor;
  Problems problems;
  const Sources sources = FindSources(file, resolve, wanted, &problems);
  for (const Parameter& parameter : parameters) {
    if (sources.count(parameter.name) == 0) {
      problems.Add(absl::StrCat("missing '", parameter.name, "'"));
    }
  }
  const auto status = [&] { return problems.ToStatus(absl::StatusCode::kInvalidArgument, path); };
  RETURN_IF_ERROR(status());
  for (const auto& [name, entries] : sources) {
    for (size_t i = 1; i < entries.size(); ++i) {
      if (ReadAsFloat(file, *entries[0]).equal(ReadAsFloat(file, *entries[i]))) continue;
      problems.Add(absl::StrCat("'", entries[0]->name, "' and '", entries[i]->name,
                                "' are one parameter of this model, but differ in the file"));
    }
  }
  RETURN_IF_ERROR(status());
  const at::NoGradGuard no_grad;
  for (const auto& [name, entries] : sources) wanted[name].copy_(ReadAsFloat(file, *entries[0]));
  return absl::OkStatus();
}

absl::Status LoadWeights(const std::string& path, const models::Model& model) {
  return LoadWeights(path, model.Parameters(),
                     [&model](const std::string& name) { return model.ResolveWeight(name); });
}

absl::Status SaveWeights(const std::string& path, const std::vector<Parameter>& parameters) {
  std::vector<Entry> entries;
  for (const Parameter& parameter : parameters) {
    entries.push_back({parameter.name, DType::kF32, parameter.tensor.sizes().vec()});
  }
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan,
                   safetensors::Plan(std::move(entries), {{"format", "pt"}}));
  RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
  const std::string temporary = path + ".tmp";
  ASSIGN_OR_RETURN(const auto writer, files::HashingWriter::Create(temporary));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  for (const Parameter& parameter : parameters) {
    const at::Tensor values = parameter.tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    RETURN_IF_ERROR(writer->Append(values.const_data_ptr<float>(), values.nbytes()));
  }
  RETURN_IF_ERROR(writer->Finish().status());
  const absl::Status renamed = files::RenameDurably(temporary, path);
  if (!renamed.ok()) unlink(temporary.c_str());
  return renamed;
}

absl::Status ExportModel(const std::string& path, const models::Model& model) {
  RETURN_IF_ERROR(SaveWeights(path, model.Parameters()));
  const std::string config = model.HuggingFaceConfig();
  if (config.empty()) return absl::OkStatus();
  return files::WriteAtomically(files::JoinPath(files::ParentDirectory(path), "config.json"),
                                config);
}

}  // namespace muster::checkpoint
