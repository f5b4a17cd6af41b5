#include "worker/data/safetensors_dataset.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::data {
namespace {

using safetensors::DType;
using safetensors::Entry;
using safetensors::ShapeString;

class SafetensorsDataset : public Dataset {
 public:
  absl::Status Add(const std::string& path, const InputSpec& spec) {
    ASSIGN_OR_RETURN(safetensors::File file, safetensors::File::Open(path));
    ASSIGN_OR_RETURN(const Entry inputs, Find(file, "inputs", DType::kF32));
    ASSIGN_OR_RETURN(const Entry labels, Find(file, "labels", DType::kI64));
    const std::vector<int64_t> row(inputs.shape.begin() + 1, inputs.shape.end());
    int64_t elements = 1;
    bool overflow = false;  // possible when there are no rows
    for (int64_t size : row) overflow |= __builtin_mul_overflow(elements, size, &elements);
    if (row.empty() || overflow || elements != spec.row_elements) {
      return Wrong(path, absl::StrCat("inputs: expected [N, ...] with ", spec.row_elements,
                                      " numbers per row, found ", ShapeString(inputs.shape)));
    }
    if (!files_.empty() && row != row_shape_) {
      return Wrong(path,
                   absl::StrCat("inputs: expected rows of ", ShapeString(row_shape_), " as in ",
                                files_.front().path(), ", found ", ShapeString(row)));
    }
    const int64_t rows = inputs.shape[0];
    if (labels.shape != std::vector<int64_t>{rows}) {
      return Wrong(path, absl::StrCat("labels: expected ", ShapeString({rows}), ", found ",
                                      ShapeString(labels.shape)));
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t label = Label(file.data(labels), i);
      if (label < 0 || label >= spec.classes) {
        return Wrong(path, absl::StrCat("labels: row ", i, ": expected a class in [0, ",
                                        spec.classes, "), found ", label));
      }
    }
    row_shape_ = row;
    row_elements_ = elements;
    size_ += rows;
    ends_.push_back(size_);
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    const int64_t batch = static_cast<int64_t>(samples.size());
    std::vector<int64_t> shape = {batch};
    shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
    Batch out = {at::empty(shape, at::kFloat), at::empty({batch}, at::kLong)};
    const size_t row_bytes = static_cast<size_t>(row_elements_) * sizeof(float);
    for (int64_t i = 0; i < batch; ++i) {
      if (samples[i] < 0 || samples[i] >= size_) {
        return absl::OutOfRangeError(
            absl::StrCat("sample ", samples[i], ": expected one of ", size_));
      }
      const size_t at = std::upper_bound(ends_.begin(), ends_.end(), samples[i]) - ends_.begin();
      const safetensors::File& file = files_[at];
      const int64_t within = samples[i] - (at == 0 ? 0 : ends_[at - 1]);
      std::memcpy(out.inputs.data_ptr<float>() + i * row_elements_,
                  file.data(*file.Find("inputs")) + within * row_bytes, row_bytes);
      out.targets.data_ptr<int64_t>()[i] = Label(file.data(*file.Find("labels")), within);
    }
    return out;
  }

 private:
  static absl::Status Wrong(const std::string& path, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  }

  static absl::StatusOr<Entry> Find(const safetensors::File& file, const std::string& name,
                                    DType dtype) {
    const Entry* entry = file.Find(name);
    if (entry == nullptr) {
      return Wrong(file.path(),
                   absl::StrCat("expected 'inputs' and 'labels', found no '", name, "'"));
    }
    if (entry->dtype != dtype || entry->shape.empty()) {
      return Wrong(file.path(), absl::StrCat(name, ": expected ", Name(dtype), " rows, found ",
                                             Name(entry->dtype), " ", ShapeString(entry->shape)));
    }
    return *entry;
  }

  // The data of a file may lie at any address.
  static int64_t Label(const uint8_t* labels, int64_t row) {
    int64_t label;
    std::memcpy(&label, labels + row * sizeof(label), sizeof(label));
    return label;
  }

  int64_t size_ = 0;
  int64_t row_elements_ = 0;
  std::vector<int64_t> row_shape_;
  std::vector<safetensors::File> files_;
  std::vector<int64_t> ends_;  // rows in the files up to and with this one
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec) {
  if (spec.kind != InputSpec::Kind::kRows) {
    return absl::InvalidArgumentError("the model takes tokens, the data are rows");
  }
  if (paths.empty()) return absl::InvalidArgumentError("safetensors: expected at least one path");
  auto dataset = std::make_unique<SafetensorsDataset>();
  for (const std::string& path : paths) RETURN_IF_ERROR(dataset->Add(path, spec));
  if (dataset->size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(paths.front(), ": expected a row, found none"));
  }
  return dataset;
}

}  // namespace muster::data
