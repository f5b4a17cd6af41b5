#include "worker/models/exported/folder.h"

#include <optional>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/mapped_file.h"
#include "common/safetensors/strict_json.h"
#include "common/status/status.h"
#include "worker/device/memory.h"
#include "worker/models/exported/json_fields.h"
#include "worker/models/unit.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;
using safetensors::DType;

// Far more than any model has; bounds for hostile files.
constexpr uint64_t kLargestJson = uint64_t{1} << 28;
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;
constexpr uint64_t kLargestConstants = uint64_t{1} << 32;

absl::Status CheckSize(const std::string& path, uint64_t found, uint64_t largest) {
  if (found <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected at most ", largest, " bytes, found ", found));
}

// Adds the file's bytes to the hash.
absl::StatusOr<json> ReadJson(const std::string& path, files::Hasher* hash) {
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  RETURN_IF_ERROR(CheckSize(path, file.size(), kLargestJson));
  hash->Update(file.data(), file.size());
  auto parsed = safetensors::ParseStrictJson(file.data(), file.size());
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  return parsed;
}

std::optional<c10::ScalarType> ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kU8:
      return at::kByte;
    case DType::kI8:
      return at::kChar;
    case DType::kI16:
      return at::kShort;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<Graph> OpenGraph(const std::string& path, const Manifest& manifest,
                                const std::vector<std::string>& constants, GraphUse use,
                                files::Hasher* hash) {
  ASSIGN_OR_RETURN(const json file, ReadJson(path, hash));
  auto graph = ReadGraph(file, manifest.units, constants, use);
  if (!graph.ok()) return Annotate(graph.status(), path);
  if (graph->units[0].inputs.size() != manifest.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected the ", manifest.inputs.size(),
                                                   " inputs of the manifest, found ",
                                                   graph->units[0].inputs.size()));
  }
  return graph;
}

// Numbers in half precision become float32.
bool Fits(std::optional<c10::ScalarType> found, c10::ScalarType expected) {
  return found == expected ||
         (expected == at::kFloat && (found == at::kHalf || found == at::kBFloat16));
}

absl::Status CheckWeights(const std::string& path, const Weights& weights,
                          const std::vector<StateTensor>& tensors) {
  for (const StateTensor& one : tensors) {
    const safetensors::StoredTensor* stored = weights.Find(one.name);
    if (stored == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has no '", Shown(one.name), "'"));
    }
    const safetensors::Entry& entry = *stored->entry;
    if (entry.shape != one.shape || !Fits(ScalarTypeOf(entry.dtype), one.type)) {
      return absl::InvalidArgumentError(absl::StrCat(
          stored->file->path(), ": '", Shown(one.name), "': expected ", c10::toString(one.type),
          " ", safetensors::ShapeString(one.shape), " as in manifest.json, found ",
          safetensors::Name(entry.dtype), " ", safetensors::ShapeString(entry.shape)));
    }
  }
  return absl::OkStatus();
}

// Reads the config.json of a model of transformers, if there is one.
absl::Status ReadConfig(const std::string& path, std::string* config) {
  const auto file = files::MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  if (!file.ok()) return file.status();
  RETURN_IF_ERROR(CheckSize(path, file->size(), kLargestConfig));
  const auto parsed = safetensors::ParseStrictJson(file->data(), file->size());
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  if (!parsed->is_object()) return Annotate(Expected("an object", *parsed), path);
  config->assign(reinterpret_cast<const char*>(file->data()), file->size());
  return absl::OkStatus();
}

}  // namespace

Weights::Weights(safetensors::TensorSet files) : files_(std::move(files)) {
  for (const safetensors::StoredTensor& one : files_.tensors()) by_name_.emplace(one.name(), one);
}

const safetensors::StoredTensor* Weights::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

at::Tensor ReadRange(const safetensors::StoredTensor& tensor, c10::ScalarType type, int64_t begin,
                     int64_t end) {
  if (const absl::Status status = tensor.file->mapped().CheckNotShrunk(); !status.ok()) {
    throw ModelError(std::string(status.message()));
  }
  const c10::ScalarType stored = *ScalarTypeOf(tensor.entry->dtype);
  at::Tensor values = at::empty({end - begin}, at::TensorOptions().dtype(stored));
  const size_t size = safetensors::ElementSize(tensor.entry->dtype);
  device::CopyFromHost(values, 0, tensor.data() + begin * size, (end - begin) * size);
  return values.to(type);
}

absl::StatusOr<Folder> OpenFolder(const std::string& path) {
  Folder folder;
  files::Hasher hash;
  const std::string manifest_path = files::JoinPath(path, "manifest.json");
  ASSIGN_OR_RETURN(const json manifest, ReadJson(manifest_path, &hash));
  auto read = ReadManifest(manifest);
  if (!read.ok()) return Annotate(read.status(), manifest_path);
  folder.manifest = *std::move(read);
  const std::string weights = safetensors::PathOfModel(path);
  ASSIGN_OR_RETURN(safetensors::TensorSet files, safetensors::TensorSet::Open(weights));
  folder.weights = std::make_shared<const Weights>(std::move(files));
  RETURN_IF_ERROR(CheckWeights(weights, *folder.weights, folder.manifest.parameters));
  RETURN_IF_ERROR(CheckWeights(weights, *folder.weights, folder.manifest.buffers));
  ASSIGN_OR_RETURN(const safetensors::File constants,
                   safetensors::File::Open(files::JoinPath(path, "constants.safetensors")));
  RETURN_IF_ERROR(CheckSize(constants.path(), constants.mapped().size(), kLargestConstants));
  hash.Update(constants.mapped().data(), constants.mapped().size());
  std::vector<std::string> names;
  for (const safetensors::Entry& entry : constants.header().entries) {
    const auto type = ScalarTypeOf(entry.dtype);
    if (!type.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(constants.path(), ": '", Shown(entry.name),
                                                     "': found ", safetensors::Name(entry.dtype),
                                                     ", which no graph can use"));
    }
    int64_t elements = 1;
    for (const int64_t size : entry.shape) elements *= size;
    folder.constants[entry.name] =
        ReadRange({&constants, &entry}, *type, 0, elements).view(entry.shape);
    names.push_back(entry.name);
  }
  ASSIGN_OR_RETURN(folder.train, OpenGraph(files::JoinPath(path, "train.json"), folder.manifest,
                                           names, GraphUse::kTraining, &hash));
  ASSIGN_OR_RETURN(folder.evaluate,
                   OpenGraph(files::JoinPath(path, "evaluate.json"), folder.manifest, names,
                             GraphUse::kEvaluation, &hash));
  folder.hash = hash.Hex();
  RETURN_IF_ERROR(ReadConfig(files::JoinPath(path, "config.json"), &folder.config));
  return folder;
}

}  // namespace muster::models::exported
