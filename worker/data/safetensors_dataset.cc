#include "worker/data/safetensors_dataset.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/data/array.h"
#include "worker/data/array_dataset.h"
#include "worker/data/elements.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

using safetensors::DType;

constexpr char kLabels[] = "labels";

// Returns the type of elements, if it can be read.
std::optional<ElementType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return ElementType::kBool;
    case DType::kU8:
      return ElementType::kUint8;
    case DType::kI8:
      return ElementType::kInt8;
    case DType::kU16:
      return ElementType::kUint16;
    case DType::kI16:
      return ElementType::kInt16;
    case DType::kU32:
      return ElementType::kUint32;
    case DType::kI32:
      return ElementType::kInt32;
    case DType::kI64:
      return ElementType::kInt64;
    case DType::kF16:
      return ElementType::kFloat16;
    case DType::kBF16:
      return ElementType::kBFloat16;
    case DType::kF32:
      return ElementType::kFloat32;
    case DType::kF64:
      return ElementType::kFloat64;
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kU64:
      return std::nullopt;
  }
  return std::nullopt;
}

enum class Use { kRows, kLabels, kOfModel };

// `needed`: all arrays that the file must have, for the error.
absl::StatusOr<Array> Find(const std::shared_ptr<const safetensors::File>& file,
                           const std::string& name, Use use,
                           const std::vector<std::string>& needed) {
  const safetensors::Entry* entry = file->Find(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file->path(), ": expected the arrays ",
                                                   Quoted(needed), ", found no '", name, "'"));
  }
  const std::optional<ElementType> type = TypeOf(entry->dtype);
  if (!type.has_value() || (use == Use::kRows && !IsFloat(*type))) {
    const char* expected = use == Use::kRows     ? "F32, F64, F16 or BF16"
                           : use == Use::kLabels ? "I64, another integer but U64, or F32"
                                                 : "F32, I64, I32 or BOOL";
    return absl::InvalidArgumentError(absl::StrCat(
        file->path(), ": ", name, ": expected ", expected, ", found ",
        safetensors::Name(entry->dtype), " ", safetensors::ShapeString(entry->shape),
        "; in PyTorch, ", name, ".", use == Use::kRows ? "float()" : "long()", " converts it"));
  }
  const Elements elements = {.type = *type, .shape = entry->shape, .data = file->data(*entry)};
  return Array{elements, file->path(),
               name,     static_cast<int64_t>(file->header().data_offset + entry->begin),
               file,     &file->mapped()};
}

absl::StatusOr<std::shared_ptr<const safetensors::File>> Open(const std::string& path) {
  ASSIGN_OR_RETURN(safetensors::File opened,
                   safetensors::File::Open(path, filekind::Wanted::kSafetensorsRows));
  return std::make_shared<const safetensors::File>(std::move(opened));
}

// Checks the job's names against those of the model, and returns the model's.
absl::StatusOr<std::vector<std::string>> NamesOfModel(const InputSpec& spec,
                                                      const ArrayNames& names) {
  std::vector<std::string> of_model;
  for (const models::InputArray& one : spec.arrays) of_model.push_back(one.name);
  if (spec.own_loss && names.inputs.empty() && !names.targets.empty() &&
      std::find(of_model.begin(), of_model.end(), names.targets) == of_model.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("targets: expected one of the model's inputs ", Quoted(of_model),
                     " (the model returns its loss), found '", names.targets, "'"));
  }
  std::vector<std::string> given = names.inputs;
  if (given.empty()) return of_model;
  if (spec.own_loss && !names.targets.empty()) given.push_back(names.targets);
  RETURN_IF_ERROR(Annotate(CheckInputNames(spec, std::move(given)), "inputs"));
  return of_model;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const std::vector<std::string>& paths,
                                                    const InputSpec& spec, Emptiness emptiness,
                                                    Labels labels, const ArrayNames& names) {
  ASSIGN_OR_RETURN(const std::vector<std::string> inputs, NamesOfModel(spec, names));
  std::vector<std::string> needed = inputs;
  const bool has_targets = !spec.own_loss && labels == Labels::kNeeded;
  if (has_targets && names.targets.empty() &&
      std::find(inputs.begin(), inputs.end(), kLabels) != inputs.end()) {
    return absl::InvalidArgumentError(
        "targets: the model has an input 'labels'; expected the name of the array with the "
        "targets");
  }
  if (has_targets) needed.push_back(names.targets.empty() ? kLabels : names.targets);
  std::vector<ArraysFile> files;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const auto file, Open(path));
    ArraysFile& arrays = files.emplace_back();
    for (const std::string& name : inputs) {
      ASSIGN_OR_RETURN(arrays.inputs.emplace_back(), Find(file, name, Use::kOfModel, needed));
    }
    if (!has_targets) continue;
    ASSIGN_OR_RETURN(arrays.targets, Find(file, needed.back(), Use::kLabels, needed));
  }
  return MakeArrayDataset(std::move(files), spec, labels, emptiness);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec, Emptiness emptiness,
                                                         Labels has_labels,
                                                         const ArrayNames& names) {
  if (spec.kind == InputSpec::Kind::kTokens) {
    return absl::InvalidArgumentError("the model takes tokens, the data are safetensors");
  }
  if (has_labels == Labels::kIgnored && !names.targets.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "targets: found '", names.targets, "', but predictions read no targets; leave it out"));
  }
  if (spec.kind == InputSpec::Kind::kArrays) {
    return OpenArrays(paths, spec, emptiness, has_labels, names);
  }
  if (names.inputs.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: the model takes one input, found ", Quoted(names.inputs)));
  }
  std::vector<std::string> needed = {names.inputs.empty() ? "inputs" : names.inputs[0]};
  const bool labelled = has_labels == Labels::kNeeded;
  if (labelled) needed.push_back(names.targets.empty() ? kLabels : names.targets);
  std::vector<RowFile> files;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const auto file, Open(path));
    RowFile& rows = files.emplace_back();
    ASSIGN_OR_RETURN(rows.inputs, Find(file, needed[0], Use::kRows, needed));
    if (!labelled) continue;
    ASSIGN_OR_RETURN(rows.labels, Find(file, needed[1], Use::kLabels, needed));
  }
  return MakeRowDataset(std::move(files), spec, has_labels, {}, emptiness);
}

}  // namespace muster::data
