#include "worker/data/npy_dataset.h"

#include <bit>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "worker/data/npy.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are mapped as they are");

absl::Status WrongType(const std::string& path, const std::string& name, const std::string& descr) {
  std::string why;
  if (absl::StartsWith(descr, "|O")) {
    why = " (Python objects)";
  } else if (absl::StartsWith(descr, ">")) {
    why = " (big endian)";
  }
  const char* expected = name == "inputs" ? "'<f4' (float32)" : "'<i8' (int64) or '<f4' (float32)";
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", name, ": expected dtype ", expected, ", found '", descr, "'", why));
}

absl::StatusOr<Array> Open(const std::string& path, const std::string& name) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(file->data(), file->size(), path));
  const bool is_float = header.descr == "<f4";
  if (!is_float && (name == "inputs" || header.descr != "<i8")) {
    return WrongType(path, name, header.descr);
  }
  if (header.fortran_order && header.shape.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", name,
        ": expected C order, found Fortran order; numpy.ascontiguousarray changes it"));
  }
  uint64_t expected = is_float ? 4 : 8;
  bool overflow = false;
  for (const int64_t size : header.shape) {
    overflow |= __builtin_mul_overflow(expected, static_cast<uint64_t>(size), &expected);
  }
  const uint64_t found = file->size() - header.data_offset;
  if (overflow || found != expected) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", name, ": expected ", overflow ? "more than 2^64" : absl::StrCat(expected),
        " bytes after the header, as '", header.descr, "' [", absl::StrJoin(header.shape, ", "),
        "] takes, found ", found));
  }
  return Array{.path = path,
               .name = name,
               .type = is_float ? ElementType::kFloat32 : ElementType::kInt64,
               .shape = header.shape,
               .data = file->data() + header.data_offset,
               .offset = static_cast<int64_t>(header.data_offset),
               .owner = file,
               .mapped = file.get()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenNpy(const std::vector<std::string>& inputs,
                                                 const std::vector<std::string>& labels,
                                                 const InputSpec& spec, Labels has_labels) {
  const bool labelled = has_labels == Labels::kNeeded;
  if (labelled && inputs.size() != labels.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected as many files of labels as of inputs, ", inputs.size(), ", found ",
                     labels.size()));
  }
  std::vector<RowFile> files;
  for (size_t i = 0; i < inputs.size(); ++i) {
    RowFile& file = files.emplace_back();
    ASSIGN_OR_RETURN(file.inputs, Open(inputs[i], "inputs"));
    if (!labelled) continue;
    ASSIGN_OR_RETURN(file.labels, Open(labels[i], "labels"));
  }
  return MakeRowDataset(std::move(files), spec, has_labels);
}

}  // namespace muster::data
