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
