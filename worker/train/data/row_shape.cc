#include "worker/train/data/row_shape.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::train {
namespace {

std::vector<int64_t> InputOf(const v1::ModelSpec& model) {
  const auto& shape = model.has_convnet() ? model.convnet().inputs() : model.torchscript().inputs();
  return {shape.begin(), shape.end()};
}

// The products of the first dimension, the first two, ...: where a row can be cut.
std::set<int64_t> Cuts(const std::vector<int64_t>& shape) {
  std::set<int64_t> cuts;
  int64_t numbers = 1;
  for (const int64_t dimension : shape) cuts.insert(numbers *= dimension);
  cuts.erase(1);
  return cuts;
}

std::string Shape(const std::vector<int64_t>& row) {
  return absl::StrCat("[N, ", absl::StrJoin(row, ", "), "]");
}

}  // namespace

absl::Status CheckRowShape(const v1::ModelSpec& model, const std::vector<int64_t>& row) {
  const std::vector<int64_t> input = InputOf(model);
  const std::set<int64_t> expected = Cuts(input), found = Cuts(row);
  const auto within = [](const std::set<int64_t>& a, const std::set<int64_t>& b) {
    return std::includes(b.begin(), b.end(), a.begin(), a.end());
  };
  if (input.empty() || within(found, expected) || within(expected, found)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("inputs: expected ", Shape(input), " as the model takes, found ", Shape(row),
                   ", the same numbers in another order; write the data in the model's order"));
}

}  // namespace muster::train
