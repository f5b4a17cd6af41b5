#include "worker/data/safetensors_dataset.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

using safetensors::DType;

absl::StatusOr<Array> Find(const std::shared_ptr<const safetensors::File>& file,
                           const std::string& name, const char* needed) {
  const safetensors::Entry* entry = file->Find(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->path(), ": expected ", needed, ", found no '", name, "'"));
  }
  if (entry->dtype != DType::kF32 && entry->dtype != DType::kI64) {
    return absl::InvalidArgumentError(absl::StrCat(
        file->path(), ": ", name, ": expected ", name == "inputs" ? "F32" : "I64 or F32",
        ", found ", safetensors::Name(entry->dtype), " ", safetensors::ShapeString(entry->shape)));
  }
  return Array{.path = file->path(),
               .name = name,
               .type = entry->dtype == DType::kF32 ? ElementType::kFloat32 : ElementType::kInt64,
               .shape = entry->shape,
               .data = file->data(*entry),
               .offset = static_cast<int64_t>(file->header().data_offset + entry->begin),
               .owner = file,
               .mapped = &file->mapped()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec, Emptiness emptiness,
                                                         Labels has_labels) {
  const bool labelled = has_labels == Labels::kNeeded;
  const char* const needed = labelled ? "'inputs' and 'labels'" : "'inputs'";
  std::vector<RowFile> files;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(safetensors::File opened, safetensors::File::Open(path));
    const auto file = std::make_shared<const safetensors::File>(std::move(opened));
    RowFile& rows = files.emplace_back();
    ASSIGN_OR_RETURN(rows.inputs, Find(file, "inputs", needed));
    if (!labelled) continue;
    ASSIGN_OR_RETURN(rows.labels, Find(file, "labels", needed));
  }
  return MakeRowDataset(std::move(files), spec, has_labels, {}, emptiness);
}

}  // namespace muster::data
