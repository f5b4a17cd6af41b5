#include "worker/data/npy_dataset.h"

#include <bit>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/filekind/file_kind.h"
#include "common/files/mapped_file.h"
#include "common/status/status.h"
#include "worker/data/array.h"
#include "worker/data/array_dataset.h"
#include "worker/data/elements.h"
#include "worker/data/npy.h"
#include "worker/data/row_dataset.h"

namespace muster::data {
namespace {

constexpr char kLabels[] = "labels";

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

enum class Use { kRows, kLabels, kOfModel };

absl::Status WrongType(const std::string& path, const std::string& name, Use use,
                       const std::string& descr) {
  const char* why = "";
  if (absl::StartsWith(descr, "|O")) {
    why = " (Python objects)";
  } else if (absl::StartsWith(descr, ">")) {
    why = " (big endian)";
  }
  const bool rows = use == Use::kRows;
  const char* expected = rows ? "'<f4' (float32), '<f8' or '<f2'"
                         : use == Use::kLabels
                             ? "'<i8' (int64), another integer but uint64, or '<f4'"
                             : "'<f4', '<f8', '<f2', '|b1', or an integer but uint64";
  // The letter after the order of the bytes is the kind of the numbers.
  const bool real = rows || (use == Use::kOfModel && descr.size() > 1 && descr[1] == 'f');
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", name, ": expected dtype ", expected, ", found '", descr, "'", why,
                   "; in Python, numpy.save('new.npy', numpy.load(FILE",
                   absl::StartsWith(descr, "|O") ? ", allow_pickle=True" : "", ").astype('",
                   real ? "<f4" : "<i8", "')) converts it",
                   rows && descr == "|u1" ? " (divide by 255 for pixels from 0 to 1)" : ""));
}

absl::StatusOr<Array> Open(const std::string& path, const std::string& name, Use use) {
  ASSIGN_OR_RETURN(files::MappedFile opened, files::MappedFile::Open(path));
  const auto file = std::make_shared<const files::MappedFile>(std::move(opened));
  RETURN_IF_ERROR(filekind::CheckKind(path, file->data(), file->size(), filekind::Wanted::kNpy));
  ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(file->data(), file->size(), path));
  const std::optional<ElementType> type = TypeOf(header.descr);
  if (!type.has_value() || (use == Use::kRows && !IsFloat(*type))) {
    return WrongType(path, name, use, header.descr);
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

absl::Status CheckCount(const std::string& name, size_t found, const std::string& of,
                        size_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected as many files of ", name, " as of ", of,
                                                 ", ", expected, ", found ", found));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const NpyOptions& files, const InputSpec& spec,
                                                    Labels has_labels) {
  std::vector<std::string> names;
  for (const auto& one : files.arrays) names.push_back(one.name);
  RETURN_IF_ERROR(Annotate(CheckInputNames(spec, names), "arrays"));
  const std::vector<std::string>& first = files.arrays[0].paths;
  const bool labelled = has_labels == Labels::kNeeded && !spec.own_loss;
  if (labelled) RETURN_IF_ERROR(CheckCount(kLabels, files.labels.size(), names[0], first.size()));
  if (spec.own_loss && !files.labels.empty()) {
    return absl::InvalidArgumentError(
        "labels: found files, but the model returns its loss, whose targets are among `arrays`; "
        "leave labels out");
  }
  std::vector<ArraysFile> made(first.size());
  for (const models::InputArray& input : spec.arrays) {
    const auto of_name = absl::c_find(names, input.name) - names.begin();
    const std::vector<std::string>& paths = files.arrays[of_name].paths;
    RETURN_IF_ERROR(CheckCount(input.name, paths.size(), names[0], first.size()));
    for (size_t i = 0; i < paths.size(); ++i) {
      ASSIGN_OR_RETURN(made[i].inputs.emplace_back(), Open(paths[i], input.name, Use::kOfModel));
    }
  }
  for (size_t i = 0; labelled && i < files.labels.size(); ++i) {
    ASSIGN_OR_RETURN(made[i].targets, Open(files.labels[i], kLabels, Use::kLabels));
  }
  return MakeArrayDataset(std::move(made), spec, has_labels, Emptiness::kRefused);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenNpy(const NpyOptions& files, const InputSpec& spec,
                                                 Labels has_labels) {
  const bool by_name = spec.kind == InputSpec::Kind::kArrays;
  if (by_name == files.arrays.empty()) {
    return absl::InvalidArgumentError(
        by_name ? "the model takes its inputs by name; expected `arrays`, found `inputs`"
                : "the model takes one input; expected `inputs`, found `arrays`");
  }
  if (by_name) return OpenArrays(files, spec, has_labels);
  const bool labelled = has_labels == Labels::kNeeded;
  if (labelled) {
    RETURN_IF_ERROR(CheckCount(kLabels, files.labels.size(), "inputs", files.inputs.size()));
  }
  std::vector<RowFile> rows;
  for (size_t i = 0; i < files.inputs.size(); ++i) {
    RowFile& file = rows.emplace_back();
    ASSIGN_OR_RETURN(file.inputs, Open(files.inputs[i], "inputs", Use::kRows));
    if (!labelled) continue;
    ASSIGN_OR_RETURN(file.labels, Open(files.labels[i], kLabels, Use::kLabels));
  }
  return MakeRowDataset(std::move(rows), spec, has_labels);
}

}  // namespace muster::data
