#include "client/checkpoints/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/hash.h"
#include "common/manifest/tensor_reader.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::checkpoints {
namespace {

using manifest::Manifest;
using manifest::StoredTensor;
using manifest::TensorReader;

std::string RulesOf(const Manifest& manifest) {
  std::vector<std::string> rules;
  for (const TrainableRule& rule : manifest.steering.rules) {
    rules.push_back(absl::StrCat(rule.freeze ? "freeze " : "unfreeze ", rule.pattern));
  }
  return rules.empty() ? "none" : absl::StrJoin(rules, ", ");
}

std::string RateOf(const Manifest& manifest) {
  const auto& rate = manifest.steering.learning_rate;
  return rate.has_value() ? absl::StrCat(*rate) : "the job file's";
}

std::string OptimizerOf(const Manifest& manifest) {
  std::vector<std::string> groups;
  for (const manifest::OptimizerSettings& settings : manifest.optimizer.groups) {
    std::vector<std::string> texts;
    for (const auto& [name, values] : settings) {
      texts.push_back(absl::StrCat(name, " ", absl::StrJoin(values, " ")));
    }
    groups.push_back(absl::StrJoin(texts, ", "));
  }
  return absl::StrCat(manifest.optimizer.kind, " (", absl::StrJoin(groups, "; "), ")");
}

// The names of the parameters for which `chosen` is true.
template <typename Chosen>
std::string NamesOf(const Manifest& manifest, const Chosen& chosen) {
  std::vector<std::string> names;
  for (const manifest::ParameterRecord& parameter : manifest.parameters) {
    if (chosen(parameter)) names.push_back(parameter.name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::string FrozenOf(const Manifest& manifest) {
  return NamesOf(manifest, [](const auto& parameter) { return !parameter.trainable; });
}

std::string EverTrainedOf(const Manifest& manifest) {
  return NamesOf(manifest, [](const auto& parameter) { return parameter.ever_trained; });
}

std::string GroupsOf(const Manifest& manifest) {
  std::vector<std::string> groups;
  for (const manifest::ParameterRecord& parameter : manifest.parameters) {
    groups.push_back(absl::StrCat(parameter.name, " ", parameter.group));
  }
  return absl::StrJoin(groups, ", ");
}

void CompareFacts(const Manifest& a, const Manifest& b, Comparison* result) {
  std::vector<FactDifference>* facts = &result->facts;
  const auto fact = [&](const char* name, const auto& of) {
    const std::string of_a = absl::StrCat(of(a)), of_b = absl::StrCat(of(b));
    if (of_a != of_b) facts->push_back({name, of_a, of_b});
  };
  fact("step", [](const Manifest& m) { return m.step; });
  fact("epoch", [](const Manifest& m) { return m.epoch; });
  fact("samples consumed in the epoch", [](const Manifest& m) { return m.cursor; });
  fact("model", [](const Manifest& m) { return m.model_kind; });
  fact("learning rate", RateOf);
  fact("rules of trainability", RulesOf);
  fact("changes that wait for a refresh",
       [](const Manifest& m) { return absl::StrJoin(m.steering.pending, ", "); });
  fact("validation due", [](const Manifest& m) { return m.steering.validation_due; });
  fact("step of the best checkpoint", [](const Manifest& m) {
    const auto& best = m.steering.validations.best;
    return best.has_value() ? absl::StrCat(best->step) : "";
  });
  fact("stages that ended early",
       [](const Manifest& m) { return m.steering.validations.ended.size(); });
  // Older checkpoints do not have parameters in the manifest.
  if (!a.parameters.empty() && !b.parameters.empty()) {
    fact("optimizer", OptimizerOf);
    fact("frozen parameters", FrozenOf);
    fact("parameters that were ever trained", EverTrainedOf);
    fact("groups of the parameters", GroupsOf);
  }
  facts = &result->origin;
  fact("job", [](const Manifest& m) { return m.job; });
  fact("generation", [](const Manifest& m) { return m.generation; });
  fact("last command", [](const Manifest& m) { return m.last_command; });
  fact("strategy", [](const Manifest& m) { return m.strategy; });
  fact("ranks", [](const Manifest& m) { return m.world_size; });
}

template <typename Number>
void CompareElements(const char* a, const char* b, int64_t count, ValueDifference* result) {
  for (int64_t i = 0; i < count; ++i) {
    Number x, y;
    std::memcpy(&x, a + i * sizeof(Number), sizeof(Number));
    std::memcpy(&y, b + i * sizeof(Number), sizeof(Number));
    if (std::memcmp(&x, &y, sizeof(Number)) == 0) continue;
    ++result->different;
    const double apart = std::abs(static_cast<double>(x) - static_cast<double>(y));
    if (std::isnan(apart) || std::isnan(result->largest)) {
      result->largest = std::numeric_limits<double>::quiet_NaN();
    } else {
      result->largest = std::max(result->largest, apart);
    }
  }
}

absl::StatusOr<ValueDifference> CompareValues(TensorReader& a, const StoredTensor& of_a,
                                              TensorReader& b, const StoredTensor& of_b) {
  ValueDifference result{.name = of_a.name(), .elements = of_a.elements};
  const int64_t most = static_cast<int64_t>(files::kHashedBlock) / of_a.element_bytes;
  std::vector<char> in_a(std::min(most, of_a.elements) * of_a.element_bytes);
  std::vector<char> in_b(in_a.size());
  for (int64_t begin = 0; begin < of_a.elements; begin += most) {
    const int64_t count = std::min(most, of_a.elements - begin);
    RETURN_IF_ERROR(a.Read(of_a, begin, count, in_a.data()));
    RETURN_IF_ERROR(b.Read(of_b, begin, count, in_b.data()));
    if (std::memcmp(in_a.data(), in_b.data(), count * of_a.element_bytes) == 0) continue;
    if (of_a.dtype == "F32") {
      CompareElements<float>(in_a.data(), in_b.data(), count, &result);
    } else if (of_a.dtype == "I64") {
      CompareElements<int64_t>(in_a.data(), in_b.data(), count, &result);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(a.directory(), ": ", of_a.name(),
                                                     ": expected F32 or I64, found ", of_a.dtype));
    }
  }
  return result;
}

std::string TypeOf(const StoredTensor& tensor) {
  return absl::StrCat(tensor.dtype, " ", safetensors::ShapeString(tensor.shape));
}

}  // namespace

absl::StatusOr<Comparison> Compare(const std::string& a, const std::string& b) {
  ASSIGN_OR_RETURN(TensorReader reader_a, TensorReader::Open(a));
  ASSIGN_OR_RETURN(TensorReader reader_b, TensorReader::Open(b));
  Comparison result;
  CompareFacts(reader_a.manifest(), reader_b.manifest(), &result);
  for (const StoredTensor& tensor : reader_b.tensors()) {
    if (reader_a.Find(tensor.slot, tensor.parameter) == nullptr) {
      result.only_in_b.push_back(tensor.name());
    }
  }
  for (const StoredTensor& of_a : reader_a.tensors()) {
    const StoredTensor* of_b = reader_b.Find(of_a.slot, of_a.parameter);
    if (of_b == nullptr) {
      result.only_in_a.push_back(of_a.name());
      continue;
    }
    if (TypeOf(of_a) != TypeOf(*of_b)) {
      result.shapes.push_back({of_a.name(), TypeOf(of_a), TypeOf(*of_b)});
      continue;
    }
    ASSIGN_OR_RETURN(ValueDifference difference, CompareValues(reader_a, of_a, reader_b, *of_b));
    if (difference.different == 0) {
      ++result.equal_tensors;
    } else {
      result.values.push_back(std::move(difference));
    }
  }
  return result;
}

}  // namespace muster::checkpoints
