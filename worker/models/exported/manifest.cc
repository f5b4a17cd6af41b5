#include "worker/models/exported/manifest.h"

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/models/exported/argument.h"
#include "worker/models/exported/json_fields.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;

absl::StatusOr<std::vector<int64_t>> Sizes(const json& object) {
  ASSIGN_OR_RETURN(const json* list, List(object, "shape"));
  std::vector<int64_t> sizes;
  for (const json& one : *list) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > INT64_MAX) {
      return Annotate(Expected("sizes", one), "shape");
    }
    sizes.push_back(one.get<int64_t>());
  }
  return sizes;
}

absl::StatusOr<TensorShape> ReadShape(const json& object) {
  TensorShape shape;
  ASSIGN_OR_RETURN(const std::string type, Text(object, "dtype"));
  ASSIGN_OR_RETURN(shape.type, TypeOf(type));
  ASSIGN_OR_RETURN(const json* list, List(object, "shape"));
  for (const json& one : *list) {
    Dimension dimension;
    if (one == "batch") {
      dimension.is_batch = true;
    } else if (one == "sequence" && shape.dimensions.size() == 1) {
      // A free length, which is the second size of a tensor.
    } else if (one.is_number_unsigned() && one.get<uint64_t>() <= INT64_MAX) {
      dimension.size = one.get<int64_t>();
    } else {
      return Annotate(Expected("a size, \"batch\", or \"sequence\" as the second size", one),
                      "shape");
    }
    shape.dimensions.push_back(dimension);
  }
  return shape;
}

bool IsFree(const Dimension& one) { return !one.size.has_value() && !one.is_batch; }

class ManifestReader {
 public:
  absl::StatusOr<Manifest> Read(const json& file) {
    RETURN_IF_ERROR(CheckFormat(file));
    RETURN_IF_ERROR(ReadInputs(file));
    ASSIGN_OR_RETURN(const json* output, Object(file, "output"));
    ASSIGN_OR_RETURN(manifest_.output, ReadShape(*output));
    ASSIGN_OR_RETURN(const std::string kind, Text(*output, "kind"));
    if (kind != "logits" && kind != "loss") {
      return absl::InvalidArgumentError(
          absl::StrCat("output: kind: expected logits or loss, found '", Shown(kind), "'"));
    }
    manifest_.returns_loss = kind == "loss";
    if (manifest_.returns_loss) RETURN_IF_ERROR(ReadTerms(*output));
    if (output->contains("causal")) {
      const json& causal = output->at("causal");
      if (!causal.is_boolean()) {
        return Annotate(Expected("true or false", causal), "output: causal");
      }
      manifest_.causal = causal.get<bool>();
    }
    RETURN_IF_ERROR(ReadSequence(file));
    ASSIGN_OR_RETURN(const json* precisions, List(file, "precisions"));
    for (const json& one : *precisions) {
      if (!one.is_string()) return Annotate(Expected("names", one), "precisions");
      manifest_.precisions.push_back(Shown(one.get<std::string>()));
    }
    manifest_.units.push_back({});
    index_[""] = 0;
    ASSIGN_OR_RETURN(const json* units, List(file, "units"));
    for (const json& one : *units) {
      if (!one.is_string()) return Annotate(Expected("names", one), "units");
      const std::string name = one.get<std::string>();
      if (!index_.emplace(name, manifest_.units.size()).second) {
        return absl::InvalidArgumentError(absl::StrCat("units: has '", Shown(name), "' twice"));
      }
      manifest_.units.push_back({.name = name});
    }
    RETURN_IF_ERROR(ReadTensors(file, "parameters", /*parameters=*/true, &manifest_.parameters));
    RETURN_IF_ERROR(ReadTensors(file, "buffers", /*parameters=*/false, &manifest_.buffers));
    if (manifest_.parameters.empty()) {
      return absl::InvalidArgumentError("parameters: expected one or more, found none");
    }
    ASSIGN_OR_RETURN(const json* ties, Object(file, "ties"));
    for (const auto& [name, first] : ties->items()) {
      if (!first.is_string() || !names_.contains(first.get<std::string>()) ||
          names_.contains(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("ties: '", Shown(name), "': expected another name of a tensor"));
      }
      manifest_.ties[name] = first.get<std::string>();
    }
    return std::move(manifest_);
  }

 private:
  absl::Status ReadInputs(const json& file) {
    ASSIGN_OR_RETURN(const json* inputs, List(file, "inputs"));
    for (const json& one : *inputs) {
      ASSIGN_OR_RETURN(TensorShape shape, ReadShape(one));
      ASSIGN_OR_RETURN(shape.name, Text(one, "name"));
      if (shape.dimensions.empty() || !shape.dimensions[0].is_batch) {
        return absl::InvalidArgumentError(absl::StrCat(
            "inputs: '", Shown(shape.name), "': expected \"batch\" as the first dimension"));
      }
      if (!inputs_.insert(shape.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("inputs: has '", Shown(shape.name), "' twice"));
      }
      if (one.contains("below")) {
        ASSIGN_OR_RETURN(shape.below, Integer(one, "below"));
        if (*shape.below < 1) {
          return absl::InvalidArgumentError(absl::StrCat("inputs: '", Shown(shape.name),
                                                         "': below: expected 1 or more, found ",
                                                         *shape.below));
        }
      }
      manifest_.inputs.push_back(std::move(shape));
    }
    if (manifest_.inputs.empty()) {
      return absl::InvalidArgumentError("inputs: expected one or more, found none");
    }
    return absl::OkStatus();
  }

  // There is a range for the free dimensions exactly if there are such dimensions.
  absl::Status ReadSequence(const json& file) {
    const bool free = absl::c_any_of(manifest_.inputs, HasFreeLength);
    if (HasFreeLength(manifest_.output) && !HasFreeLength(manifest_.inputs[0])) {
      return absl::InvalidArgumentError(
          "output: shape: expected \"sequence\" only if the first input has it, too");
    }
    if (!file.contains("sequence")) {
      if (!free) return absl::OkStatus();
      return absl::InvalidArgumentError("sequence: expected the range of the free dimensions");
    }
    ASSIGN_OR_RETURN(const json* range, Object(file, "sequence"));
    SequenceLength length;
    ASSIGN_OR_RETURN(length.example, Integer(*range, "example"));
    ASSIGN_OR_RETURN(length.least, Integer(*range, "min"));
    if (range->contains("max")) {
      ASSIGN_OR_RETURN(length.most, Integer(*range, "max"));
    }
    const int64_t most = length.most.value_or(INT64_MAX);
    if (!free || length.least < 1 || length.example < length.least || length.example > most) {
      return absl::InvalidArgumentError(
          "sequence: expected a length within its range, for a dimension \"sequence\"");
    }
    manifest_.sequence = length;
    return absl::OkStatus();
  }

  absl::Status ReadTerms(const json& output) {
    ASSIGN_OR_RETURN(const json* terms, Object(output, "terms"));
    if (terms->empty()) return absl::OkStatus();
    if (absl::Status status = OnlyFields(*terms, {"input", "first", "ignored"}); !status.ok()) {
      return Annotate(status, "output: terms");
    }
    ASSIGN_OR_RETURN(manifest_.terms.input, Text(*terms, "input"));
    ASSIGN_OR_RETURN(manifest_.terms.first, Integer(*terms, "first"));
    ASSIGN_OR_RETURN(manifest_.terms.ignored, Integer(*terms, "ignored"));
    if (manifest_.terms.first == 0 || manifest_.terms.first == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("output: terms: first: expected 0 or 1, found ", manifest_.terms.first));
  }

  absl::Status ReadTensors(const json& file, const char* what, bool parameters,
                           std::vector<StateTensor>* tensors) {
    ASSIGN_OR_RETURN(const json* list, List(file, what));
    for (const json& one : *list) {
      auto tensor = ReadTensor(one, parameters);
      if (!tensor.ok()) return Annotate(tensor.status(), what);
      tensors->push_back(*std::move(tensor));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StateTensor> ReadTensor(const json& file, bool parameter) {
    StateTensor tensor;
    ASSIGN_OR_RETURN(tensor.name, Text(file, "name"));
    const std::string who = absl::StrCat("'", Shown(tensor.name), "'");
    if (tensor.name.empty() || !names_.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(who, ": expected a name of its own"));
    }
    ASSIGN_OR_RETURN(tensor.shape, Sizes(file));
    ASSIGN_OR_RETURN(const std::string type, Text(file, "dtype"));
    ASSIGN_OR_RETURN(tensor.type, TypeOf(type));
    if (tensor.type != at::kFloat && (parameter || tensor.type != at::kLong)) {
      return absl::InvalidArgumentError(absl::StrCat(
          who, ": expected float32", parameter ? "" : " or int64", ", found ", Shown(type)));
    }
    if (parameter) {
      ASSIGN_OR_RETURN(tensor.trainable, Boolean(file, "trainable"));
    }
    ASSIGN_OR_RETURN(tensor.unit, Text(file, "unit"));
    const auto unit = index_.find(tensor.unit);
    if (unit == index_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": has the unit '", Shown(tensor.unit), "', which does not exist"));
    }
    UnitTensors& tensors = manifest_.units[unit->second];
    (parameter ? tensors.parameters : tensors.buffers).push_back(tensor.name);
    return tensor;
  }

  Manifest manifest_;
  std::set<std::string> inputs_;
  std::map<std::string, size_t> index_;
  std::set<std::string> names_;
};

}  // namespace

bool HasFreeLength(const TensorShape& shape) { return absl::c_any_of(shape.dimensions, IsFree); }

absl::StatusOr<Manifest> ReadManifest(const json& file) { return ManifestReader().Read(file); }

absl::Status SetContext(int64_t context, Manifest* manifest) {
  if (!manifest->sequence.has_value()) {
    if (context == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("context: found ", context,
                     ", but the length of the model's inputs is not free; leave context out, or "
                     "export the model with dynamic={\"sequence\": True}"));
  }
  const SequenceLength& length = *manifest->sequence;
  const int64_t chosen = context > 0 ? context : length.example;
  if (chosen < length.least || chosen > length.most.value_or(INT64_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context: expected ", length.least,
        length.most.has_value() ? absl::StrCat(" to ", *length.most) : std::string(" or more"),
        ", for which the model was exported, found ", chosen));
  }
  const auto set = [chosen](TensorShape& shape) {
    for (Dimension& one : shape.dimensions) {
      if (IsFree(one)) one.size = chosen;
    }
  };
  for (TensorShape& one : manifest->inputs) set(one);
  set(manifest->output);
  return absl::OkStatus();
}

}  // namespace muster::models::exported
