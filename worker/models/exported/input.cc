#include "worker/models/exported/input.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::models::exported {
namespace {

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("manifest.json: ", what));
}

// Returns the sizes after the first one, which is the number of samples.
absl::StatusOr<std::vector<int64_t>> SizesOfSample(const std::string& who,
                                                   const TensorShape& shape) {
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (size_t i = 1; i < shape.dimensions.size(); ++i) {
    if (!shape.dimensions[i].size.has_value()) {
      return Wrong(absl::StrCat(who, ": expected numbers as the sizes of a sample"));
    }
    sizes.push_back(*shape.dimensions[i].size);
    if (sizes.back() < 1 || __builtin_mul_overflow(elements, sizes.back(), &elements)) {
      return Wrong(absl::StrCat(who, ": expected sizes from 1 on, as many as int64 can count"));
    }
  }
  return sizes;
}

absl::StatusOr<InputArray> ArrayOf(const TensorShape& input) {
  const std::string who = absl::StrCat("inputs: '", input.name, "'");
  InputArray array{.name = input.name, .type = input.type, .below = input.below};
  if (input.type != at::kFloat && input.type != at::kLong && input.type != at::kInt &&
      input.type != at::kBool) {
    return Wrong(absl::StrCat(who, ": expected float32, int64, int32 or bool, found ",
                              c10::toString(input.type)));
  }
  ASSIGN_OR_RETURN(array.shape, SizesOfSample(who, input));
  return array;
}

// Adds to `spec` how a loss is counted, and whether tokens can fill the inputs.
absl::Status AddLoss(const Manifest& manifest, InputSpec* spec) {
  spec->own_loss = true;
  if (!manifest.terms.input.has_value()) return absl::OkStatus();
  const std::string& name = *manifest.terms.input;
  size_t input = 0;
  while (input < spec->arrays.size() && spec->arrays[input].name != name) ++input;
  const bool shifts = manifest.terms.first > 0;
  const bool fits =
      input < spec->arrays.size() && spec->arrays[input].type == at::kLong &&
      (!shifts || (!spec->arrays[input].shape.empty() && spec->arrays[input].shape[0] > 1));
  if (!fits) {
    return Wrong(absl::StrCat("output: terms: expected the name of an int64 input",
                              shifts ? " with two targets or more" : "", ", found '", name, "'"));
  }
  spec->counted = CountedInput{input, manifest.terms.first};
  spec->ignored = manifest.terms.ignored;
  if (spec->arrays.size() != 2 || name != "labels") return absl::OkStatus();
  const InputArray& tokens = spec->arrays[1 - input];
  if (tokens.name == "input_ids" && tokens.type == at::kLong && tokens.shape.size() == 1 &&
      tokens.below.has_value() && tokens.shape == spec->arrays[input].shape) {
    spec->context = tokens.shape[0];
    spec->vocab_size = *tokens.below;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputSpec> InputOf(const Manifest& manifest) {
  const TensorShape& output = manifest.output;
  if (output.type != at::kFloat) {
    return Wrong(absl::StrCat("output: expected float32, found ", c10::toString(output.type)));
  }
  InputSpec spec{.kind = InputSpec::Kind::kArrays};
  for (const TensorShape& input : manifest.inputs) {
    ASSIGN_OR_RETURN(InputArray array, ArrayOf(input));
    spec.arrays.push_back(std::move(array));
  }
  if (manifest.returns_loss) {
    if (!output.dimensions.empty()) return Wrong("output: expected a loss without dimensions");
    RETURN_IF_ERROR(AddLoss(manifest, &spec));
    return spec;
  }
  ASSIGN_OR_RETURN(spec.target_shape, SizesOfSample("output", output));
  if (spec.target_shape.empty() || !output.dimensions[0].is_batch) {
    return Wrong("output: expected logits [batch, ..., classes]");
  }
  spec.classes = spec.target_shape.back();
  spec.target_shape.pop_back();
  if (spec.arrays.size() > 1) return spec;
  const InputArray& only = spec.arrays[0];
  if (only.type == at::kLong && only.shape.size() == 1 && spec.target_shape == only.shape) {
    // A vocabulary may be padded in the logits alone.
    return InputSpec{.kind = InputSpec::Kind::kTokens,
                     .vocab_size = std::min(spec.classes, only.below.value_or(spec.classes)),
                     .context = only.shape[0]};
  }
  if (only.type == at::kFloat && !only.shape.empty() && spec.target_shape.empty()) {
    return InputSpec{
        .kind = InputSpec::Kind::kRows, .row_elements = only.elements(), .classes = spec.classes};
  }
  return spec;
}

}  // namespace muster::models::exported
