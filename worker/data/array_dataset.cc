#include "worker/data/array_dataset.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/data/file_offsets.h"

namespace muster::data {
namespace {

using models::InputArray;

// The number of elements that Check reads between two calls of activity::Moved().
constexpr int64_t kBlockElements = int64_t{1} << 18;

ElementType ReadAs(c10::ScalarType type) {
  switch (type) {
    case at::kLong:
      return ElementType::kInt64;
    case at::kInt:
      return ElementType::kInt32;
    case at::kBool:
      return ElementType::kBool;
    default:
      return ElementType::kFloat32;
  }
}

// What an array must contain.
struct Column {
  InputArray array;
  std::optional<int64_t> ignored;  // a whole number that may stand outside of the range

  ElementType type() const { return ReadAs(array.type); }
  bool whole() const { return array.type != at::kFloat; }

  // Returns the smallest and the largest number that are allowed.
  std::pair<int64_t, int64_t> Range() const {
    if (array.type == at::kBool) return {0, 1};
    if (array.below.has_value()) return {0, *array.below - 1};
    if (array.type == at::kInt) return {INT32_MIN, INT32_MAX};
    return {INT64_MIN, INT64_MAX};
  }

  std::vector<int64_t> Shape(int64_t samples) const {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), array.shape.begin(), array.shape.end());
    return shape;
  }
};

class ArrayDataset : public Dataset {
 public:
  ArrayDataset(const InputSpec& spec, Labels labels) : spec_(spec) {
    for (const InputArray& array : spec.arrays) columns_.push_back({array, std::nullopt});
    if (spec.own_loss || labels == Labels::kIgnored) return;
    InputArray targets = {.name = "targets", .type = at::kLong, .shape = spec.target_shape};
    if (spec.target_numbers > 0) {
      targets.type = at::kFloat;
      targets.shape.push_back(spec.classes);
    } else {
      targets.below = spec.classes;
    }
    columns_.push_back({targets, spec.ignored});
  }

  bool has_targets() const { return columns_.size() > spec_.arrays.size(); }

  absl::Status Add(ArraysFile file) {
    std::vector<Array> arrays = std::move(file.inputs);
    if (has_targets()) arrays.push_back(std::move(file.targets));
    for (size_t i = 0; i < arrays.size(); ++i) {
      const bool target = i == spec_.arrays.size();
      RETURN_IF_ERROR(CheckArray(arrays[i], columns_[i], arrays[0], target));
      NoteCast(arrays[i], columns_[i].type(), &notes_);
    }
    offsets_.Append(arrays[0].shape[0]);
    files_.push_back(std::move(arrays));
    return absl::OkStatus();
  }

  int64_t size() const override { return offsets_.size(); }
  std::vector<Note> notes() const override { return notes_.All(); }

  absl::Status Check(const Part& part) const override {
    for (const FileOffsets::Range& range : offsets_.Of(part)) {
      for (size_t i = 0; i < columns_.size(); ++i) {
        if (!columns_[i].whole()) continue;  // Read checks whether numbers are finite
        const Array& array = files_[range.file][i];
        RETURN_IF_ERROR(array.CheckNotShrunk());
        const int64_t count = array.row_elements();
        int64_t checked = 0;
        for (int64_t row = range.begin; row < range.end; ++row) {
          RETURN_IF_ERROR(ReadWhole(i, array, row, [](int64_t, int64_t) {}));
          if ((checked += count) < kBlockElements) continue;
          checked = 0;
          activity::Moved();
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
    std::vector<bool> checked(files_.size());
    for (const FileOffsets::Place& place : places) {
      if (checked[place.file]) continue;
      checked[place.file] = true;
      for (const Array& array : files_[place.file]) RETURN_IF_ERROR(array.CheckNotShrunk());
    }
    const int64_t batch = static_cast<int64_t>(samples.size());
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < columns_.size(); ++i) {
      at::Tensor& out =
          tensors.emplace_back(at::empty(columns_[i].Shape(batch), columns_[i].array.type));
      for (int64_t row = 0; row < batch; ++row) {
        RETURN_IF_ERROR(ReadRow(i, files_[places[row].file][i], places[row].within, out, row));
      }
    }
    return Arranged(std::move(tensors));
  }

  Batch Blank(int64_t samples) const override {
    std::vector<at::Tensor> tensors;
    for (const Column& column : columns_) {
      tensors.push_back(at::zeros(column.Shape(samples), column.array.type));
    }
    return Arranged(std::move(tensors));
  }

 private:
  static absl::Status CheckArray(const Array& array, const Column& column, const Array& first,
                                 bool target) {
    if (array.shape.empty()) {
      return Wrong(array, "expected the samples as the first dimension, found a single number");
    }
    const bool fits = column.whole() ? !IsFloat(array.type) : IsFloat(array.type);
    const std::vector<int64_t> row(array.shape.begin() + 1, array.shape.end());
    // A target that is one number may leave out its dimensions.
    const int64_t numbers = column.array.elements();
    const bool shaped =
        row == column.array.shape ||
        (target && (row == std::vector<int64_t>{numbers} || (numbers == 1 && row.empty())));
    if (!fits || !shaped) {
      std::vector<int64_t> expected = column.Shape(array.shape[0]);
      const char* next = "";
      if (!fits) next = column.whole() ? "; convert it to int64" : "; convert it to float32";
      return Wrong(array, absl::StrCat("expected ", Name(column.type()), " ", ShapeString(expected),
                                       target ? column.whole() ? " (classes)" : " (numbers)"
                                              : " as the model takes",
                                       ", found ", Describe(array), next));
    }
    if (array.shape[0] == first.shape[0]) return absl::OkStatus();
    return Wrong(array, absl::StrCat("expected ", first.shape[0], " samples as '", first.name,
                                     "' has, found ", array.shape[0]));
  }

  // Calls take(place, number) for each number of a row.
  template <typename Take>
  absl::Status ReadWhole(size_t column, const Array& array, int64_t row, Take take) const {
    const auto [smallest, largest] = columns_[column].Range();
    const int64_t count = array.row_elements();
    for (int64_t within = 0; within < count; ++within) {
      const int64_t found = IntegerAt(array, OffsetOf(array, row, within));
      if ((found < smallest || found > largest) && found != columns_[column].ignored) {
        return WrongElement(array, row, within,
                            absl::StrCat("expected a whole number from ", smallest, " to ", largest,
                                         ", found ", found));
      }
      take(within, found);
    }
    return absl::OkStatus();
  }

  absl::Status ReadRow(size_t column, const Array& array, int64_t row, const at::Tensor& out,
                       int64_t at) const {
    const int64_t begin = at * array.row_elements();
    const auto whole = [&](auto* data) {
      return ReadWhole(column, array, row, [&](int64_t within, int64_t number) {
        data[begin + within] = static_cast<std::remove_pointer_t<decltype(data)>>(number);
      });
    };
    switch (columns_[column].array.type) {
      case at::kLong:
        return whole(out.data_ptr<int64_t>());
      case at::kInt:
        return whole(out.data_ptr<int32_t>());
      case at::kBool:
        return whole(out.data_ptr<bool>());
      default:
        return ReadNumbers(array, row, out.data_ptr<float>() + begin);
    }
  }

  Batch Arranged(std::vector<at::Tensor> tensors) const {
    Batch batch;
    if (has_targets()) {
      batch.targets = std::move(tensors.back());
      tensors.pop_back();
    } else if (spec_.own_loss) {
      batch.targets = models::CountedTargets(spec_, tensors);
    } else {
      batch.targets = at::zeros({tensors[0].size(0)}, at::kLong);
    }
    batch.inputs = tensors[0];
    batch.further.assign(tensors.begin() + 1, tensors.end());
    return batch;
  }

  const InputSpec spec_;
  std::vector<Column> columns_;  // the inputs, then the targets if they are read
  std::vector<std::vector<Array>> files_;
  FileOffsets offsets_;
  Notes notes_;
};

}  // namespace

std::string Quoted(const std::vector<std::string>& names) {
  return absl::StrCat("'", absl::StrJoin(names, "', '"), "'");
}

absl::Status CheckInputNames(const InputSpec& spec, std::vector<std::string> given) {
  std::vector<std::string> of_model;
  for (const InputArray& one : spec.arrays) of_model.push_back(one.name);
  std::vector<std::string> expected = of_model;
  std::sort(given.begin(), given.end());
  std::sort(expected.begin(), expected.end());
  if (given == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected the model's inputs ", Quoted(of_model),
      spec.own_loss ? " (the model returns its loss, so its targets are among them)" : "",
      ", found ", Quoted(given)));
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeArrayDataset(std::vector<ArraysFile> files,
                                                          const InputSpec& spec, Labels labels,
                                                          Emptiness emptiness) {
  if (spec.kind != InputSpec::Kind::kArrays) {
    return absl::InvalidArgumentError("the model does not take its inputs by name");
  }
  if (files.empty()) return absl::InvalidArgumentError("expected at least one path");
  const std::string first = files.front().inputs.front().path;
  auto dataset = std::make_unique<ArrayDataset>(spec, labels);
  for (ArraysFile& file : files) RETURN_IF_ERROR(dataset->Add(std::move(file)));
  if (dataset->size() == 0 && emptiness == Emptiness::kRefused) {
    return absl::InvalidArgumentError(absl::StrCat(first, ": expected a sample, found none"));
  }
  return dataset;
}

}  // namespace muster::data
