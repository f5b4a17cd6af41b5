#include "common/safetensors/safetensors.h"

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"

namespace muster::safetensors {
namespace {

// The names, in the order of DType.
constexpr const char* kNames[] = {"BOOL", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "I16", "U16", "F16",
                                  "BF16", "I32", "U32", "F32",     "I64",     "U64", "F64"};
static_assert(std::size(kNames) == static_cast<size_t>(DType::kF64) + 1);

}  // namespace

std::string Name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

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
