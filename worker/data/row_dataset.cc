#include "worker/data/row_dataset.h"

#include <algorithm>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/data/file_offsets.h"
#include "worker/data/notes.h"

namespace muster::data {
namespace {

// The number of labels that Check reads between two calls of activity::Moved().
constexpr int64_t kBlock = int64_t{1} << 18;

class RowDataset : public Dataset {
 public:
  RowDataset(const InputSpec& spec, Labels labels, const ByteValues& bytes)
      : spec_(spec), labels_(labels), bytes_(bytes) {}

  absl::Status Add(RowFile file) {
    RETURN_IF_ERROR(CheckInputs(file.inputs));
    if (has_labels()) RETURN_IF_ERROR(CheckLabels(file.labels, file.inputs.shape[0]));
    NoteCast(file.inputs, ElementType::kFloat32, &notes_);
    if (has_labels()) NoteCast(file.labels, LabelType(file.labels), &notes_);
    row_shape_.assign(file.inputs.shape.begin() + 1, file.inputs.shape.end());
    offsets_.Append(file.inputs.shape[0]);
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  int64_t size() const override { return offsets_.size(); }
  std::vector<Note> notes() const override { return notes_.All(); }

  absl::Status Check(const Part& part) const override {
    // Read checks whether numbers are finite.
    if (numbers() || !has_labels()) return absl::OkStatus();
    for (const FileOffsets::Range& range : offsets_.Of(part)) {
      const Array& labels = files_[range.file].labels;
      RETURN_IF_ERROR(labels.CheckNotShrunk());
      for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, range.end);
        for (int64_t row = begin; row < end; ++row) {
          RETURN_IF_ERROR(ReadClass(labels, row).status());
        }
        activity::Moved();
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    std::vector<FileOffsets::Place> places;
    for (const int64_t sample : samples) {
      ASSIGN_OR_RETURN(places.emplace_back(), offsets_.Find(sample));
    }
    RETURN_IF_ERROR(CheckFiles(places));
    const int64_t batch = static_cast<int64_t>(samples.size());
    std::vector<int64_t> shape = {batch};
    shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
    Batch out = {at::empty(shape, at::kFloat), BlankTargets(batch)};
    float* inputs = out.inputs.data_ptr<float>();
    for (int64_t i = 0; i < batch; ++i) {
      const RowFile& file = files_[places[i].file];
      const int64_t row = places[i].within;
      RETURN_IF_ERROR(ReadInputs(file.inputs, row, inputs + i * spec_.row_elements));
      if (!has_labels()) continue;
      if (numbers()) {
        RETURN_IF_ERROR(ReadNumbers(file.labels, row,
                                    out.targets.data_ptr<float>() + i * spec_.target_numbers));
      } else {
        ASSIGN_OR_RETURN(out.targets.data_ptr<int64_t>()[i], ReadClass(file.labels, row));
      }
    }
    return out;
  }

  Batch Blank(int64_t samples) const override {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
    return {at::zeros(shape, at::kFloat), BlankTargets(samples)};
  }

 private:
  bool numbers() const { return spec_.target_numbers > 0; }
  bool has_labels() const { return labels_ == Labels::kNeeded; }
  static ElementType LabelType(const Array& labels) {
    return IsFloat(labels.type) ? ElementType::kFloat32 : ElementType::kInt64;
  }

  at::Tensor BlankTargets(int64_t samples) const {
    return numbers() ? at::zeros({samples, spec_.target_numbers}, at::kFloat)
                     : at::zeros({samples}, at::kLong);
  }

  absl::Status CheckInputs(const Array& inputs) const {
    if (!IsFloat(inputs.type) && inputs.type != ElementType::kUint8) {
      return Wrong(inputs, absl::StrCat("expected float32 rows, found ", Describe(inputs)));
    }
    int64_t elements = 1;
    bool overflow = false;  // possible when there are no rows
    for (size_t i = 1; i < inputs.shape.size(); ++i) {
      overflow |= __builtin_mul_overflow(elements, inputs.shape[i], &elements);
    }
    if (inputs.shape.size() < 2 || overflow || elements != spec_.row_elements) {
      return Wrong(inputs, absl::StrCat("expected [N, ...] with ", spec_.row_elements,
                                        " numbers per row, found ", ShapeString(inputs.shape)));
    }
    if (files_.empty()) return absl::OkStatus();
    const std::vector<int64_t> row(inputs.shape.begin() + 1, inputs.shape.end());
    if (row != row_shape_) {
      return Wrong(inputs, absl::StrCat("expected rows of ", ShapeString(row_shape_), " as in ",
                                        files_.front().inputs.path, ", found ", ShapeString(row)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckLabels(const Array& labels, int64_t rows) const {
    if (numbers()) {
      const std::vector<int64_t> wide = {rows, spec_.target_numbers};
      const bool narrow = spec_.target_numbers == 1 && labels.shape == std::vector<int64_t>{rows};
      if (IsFloat(labels.type) && (labels.shape == wide || narrow)) return absl::OkStatus();
      return Wrong(labels,
                   absl::StrCat("expected float32 ", ShapeString(wide),
                                " (numbers, one row for each row of inputs), found ",
                                Describe(labels),
                                IsFloat(labels.type) ? "" : "; .astype('float32') converts them"));
    }
    if (!IsFloat(labels.type) && labels.shape == std::vector<int64_t>{rows}) {
      return absl::OkStatus();
    }
    const char* next = IsFloat(labels.type) ? "; .astype('int64') converts them" : "";
    if (labels.shape == std::vector<int64_t>{rows, 1}) next = "; .reshape(-1) changes the shape";
    if (labels.shape == std::vector<int64_t>{rows, spec_.classes} && spec_.classes > 1) {
      next = "; .argmax(1) makes classes of one-hot rows";
    }
    return Wrong(labels, absl::StrCat("expected int64 ", ShapeString({rows}),
                                      " (classes, one for each row of inputs), found ",
                                      Describe(labels), next));
  }

  absl::Status CheckFiles(const std::vector<FileOffsets::Place>& places) const {
    std::vector<bool> checked(files_.size());
    for (const auto& place : places) {
      if (checked[place.file]) continue;
      checked[place.file] = true;
      for (const Array* array : {&files_[place.file].inputs, &files_[place.file].labels}) {
        RETURN_IF_ERROR(array->CheckNotShrunk());
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs(const Array& array, int64_t row, float* out) const {
    if (IsFloat(array.type)) return ReadNumbers(array, row, out);
    const uint8_t* in = array.data + row * spec_.row_elements;
    for (int64_t i = 0; i < spec_.row_elements; ++i) out[i] = bytes_[in[i]];
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> ReadClass(const Array& array, int64_t row) const {
    const int64_t found = IntegerAt(array, OffsetOf(array, row, 0));
    if ((found < 0 || found >= spec_.classes) && found != spec_.ignored) {
      return WrongElement(
          array, row, 0,
          absl::StrCat("expected a class in [0, ", spec_.classes, "), found ", found));
    }
    return found;
  }

  const InputSpec spec_;
  const Labels labels_;
  const ByteValues bytes_;
  std::vector<int64_t> row_shape_;
  std::vector<RowFile> files_;
  FileOffsets offsets_;
  Notes notes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeRowDataset(std::vector<RowFile> files,
                                                        const InputSpec& spec, Labels labels,
                                                        const ByteValues& bytes,
                                                        Emptiness emptiness) {
  if (spec.kind == InputSpec::Kind::kArrays) {
    return absl::InvalidArgumentError(
        "the model takes its inputs by name; expected safetensors files, found rows");
  }
  if (spec.kind != InputSpec::Kind::kRows) {
    return absl::InvalidArgumentError("the model takes tokens, the data are rows");
  }
  if (files.empty()) return absl::InvalidArgumentError("expected at least one path");
  const std::string first = files.front().inputs.path;
  auto dataset = std::make_unique<RowDataset>(spec, labels, bytes);
  for (RowFile& file : files) RETURN_IF_ERROR(dataset->Add(std::move(file)));
  if (dataset->size() == 0 && emptiness == Emptiness::kRefused) {
    return absl::InvalidArgumentError(absl::StrCat(first, ": expected a row, found none"));
  }
  return dataset;
}

}  // namespace muster::data
