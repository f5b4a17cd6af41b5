#include "common/safetensors/safetensors.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"

namespace muster::safetensors {

std::string Name(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kF8E5M2:
      return "F8_E5M2";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kI16:
      return "I16";
    case DType::kU16:
      return "U16";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kU32:
      return "U32";
    case DType::kF32:
      return "F32";
    case DType::kI64:
      return "I64";
    case DType::kU64:
      return "U64";
    case DType::kF64:
      return "F64";
  }
  return "?";
}

std::optional<DType> DTypeOf(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    if (Name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

uint64_t ElementSize(DType dtype) {
  if (dtype <= DType::kF8E4M3) return 1;
  if (dtype <= DType::kBF16) return 2;
  if (dtype <= DType::kF32) return 4;
  return 8;
}

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<File> File::Open(const std::string& path, filekind::Wanted wanted) {
  ASSIGN_OR_RETURN(files::MappedFile file, files::MappedFile::Open(path));
  if (const auto other = filekind::Mismatch(file.data(), file.size(), wanted)) {
    return absl::DataLossError(absl::StrCat(path, ": ", *other));
  }
  ASSIGN_OR_RETURN(Header header, ParseHeader(file.data(), file.size(), path));
  return File(std::move(file), std::move(header));
}

File::File(files::MappedFile file, Header header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_[header_.entries[i].name] = i;
}

const Entry* File::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

}  // namespace muster::safetensors
