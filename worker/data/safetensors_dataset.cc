#include "worker/data/safetensors_dataset.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/filekind/file_kind.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/data/elements.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

using safetensors::DType;

// The types that are read.
std::optional<ElementType> TypeOf(DType dtype) {
  static constexpr std::pair<DType, ElementType> kTypes[] = {
      {DType::kBool, ElementType::kBool},   {DType::kU8, ElementType::kUint8},
      {DType::kI8, ElementType::kInt8},     {DType::kU16, ElementType::kUint16},
      {DType::kI16, ElementType::kInt16},   {DType::kU32, ElementType::kUint32},
      {DType::kI32, ElementType::kInt32},   {DType::kI64, ElementType::kInt64},
      {DType::kF16, ElementType::kFloat16}, {DType::kBF16, ElementType::kBFloat16},
      {DType::kF32, ElementType::kFloat32}, {DType::kF64, ElementType::kFloat64},
  };
  for (const auto& [stored, type] : kTypes) {
    if (dtype == stored) return type;
  }
  return std::nullopt;
}

absl::StatusOr<Array> Find(const std::shared_ptr<const safetensors::File>& file,
                           const std::string& name, const char* needed) {
  const safetensors::Entry* entry = file->Find(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->path(), ": expected ", needed, ", found no '", name, "'"));
  }
  const std::optional<ElementType> type = TypeOf(entry->dtype);
  const bool inputs = name == "inputs";
  if (!type.has_value() || (inputs && !IsFloat(*type))) {
    return absl::InvalidArgumentError(absl::StrCat(
        file->path(), ": ", name, ": expected ",
        inputs ? "F32, F64, F16 or BF16" : "I64, another integer but U64, or F32", ", found ",
        safetensors::Name(entry->dtype), " ", safetensors::ShapeString(entry->shape),
        "; in PyTorch, ", name, ".", inputs ? "float()" : "long()", " converts it"));
  }
  const Elements elements = {.type = *type, .shape = entry->shape, .data = file->data(*entry)};
  return Array{elements,
               file->path(),
               name,
               static_cast<int64_t>(file->header().data_offset + entry->begin),
               file,
               &file->mapped()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec, Emptiness emptiness,
                                                         Labels has_labels) {
  const bool labelled = has_labels == Labels::kNeeded;
  const char* const needed = labelled ? "'inputs' and 'labels'" : "'inputs'";
  std::vector<RowFile> files;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(safetensors::File opened,
                     safetensors::File::Open(path, filekind::Wanted::kSafetensorsRows));
    const auto file = std::make_shared<const safetensors::File>(std::move(opened));
    RowFile& rows = files.emplace_back();
    ASSIGN_OR_RETURN(rows.inputs, Find(file, "inputs", needed));
    if (!labelled) continue;
    ASSIGN_OR_RETURN(rows.labels, Find(file, "labels", needed));
  }
  return MakeRowDataset(std::move(files), spec, has_labels, {}, emptiness);
}

}  // namespace muster::data
