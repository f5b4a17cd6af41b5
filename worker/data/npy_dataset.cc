#include "worker/data/npy_dataset.h"

#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "worker/data/elements.h"
#include "worker/data/npy.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are mapped as they are");

// Returns the type for its name in the header, if this type can be read.
std::optional<ElementType> TypeOf(const std::string& descr) {
  static constexpr std::pair<const char*, ElementType> kTypes[] = {
      {"<f2", ElementType::kFloat16}, {"<f4", ElementType::kFloat32},
      {"<f8", ElementType::kFloat64}, {"|b1", ElementType::kBool},
      {"|u1", ElementType::kUint8},   {"|i1", ElementType::kInt8},
      {"<u2", ElementType::kUint16},  {"<i2", ElementType::kInt16},
      {"<u4", ElementType::kUint32},  {"<i4", ElementType::kInt32},
      {"<i8", ElementType::kInt64},
  };
  for (const auto& [name, type] : kTypes) {
    if (descr == name) return type;
  }
  return std::nullopt;
}

absl::Status WrongType(const std::string& path, const std::string& name, const std::string& descr) {
  const char* why = "";
  if (absl::StartsWith(descr, "|O")) {
    why = " (Python objects)";
  } else if (absl::StartsWith(descr, ">")) {
    why = " (big endian)";
  }
  const bool inputs = name == "inputs";
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", name, ": expected dtype ",
      inputs ? "'<f4' (float32), '<f8' or '<f2'"
             : "'<i8' (int64), another integer but uint64, or '<f4'",
      ", found '", descr, "'", why, "; in Python, numpy.save('new.npy', numpy.load(FILE",
      absl::StartsWith(descr, "|O") ? ", allow_pickle=True" : "", ").astype('",
      inputs ? "<f4" : "<i8", "')) converts it",
      inputs && descr == "|u1" ? " (divide by 255 for pixels from 0 to 1)" : ""));
}

absl::StatusOr<Array> Open(const std::string& path, const std::string& name) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  RETURN_IF_ERROR(
      filekind::CheckKind(path, file->data(), file->size(), filekind::Wanted::kNpy));
  ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(file->data(), file->size(), path));
  const std::optional<ElementType> type = TypeOf(header.descr);
  if (!type.has_value() || (name == "inputs" && !IsFloat(*type))) {
    return WrongType(path, name, header.descr);
  }
  auto expected = static_cast<uint64_t>(ElementSize(*type));
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
  const Elements elements = {
      .type = *type,
      .order = header.fortran_order ? ElementOrder::kFortran : ElementOrder::kC,
      .shape = header.shape,
      .data = file->data() + header.data_offset};
  return Array{elements, path, name, static_cast<int64_t>(header.data_offset), file, file.get()};
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
