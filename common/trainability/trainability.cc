#include "common/trainability/trainability.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/glob/glob.h"
#include "common/jobfile/near_name.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

}  // namespace

Trainability::Trainability(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  for (const Parameter& parameter : parameters_) mask_.push_back(parameter.trained);
}

absl::StatusOr<Trainability> Trainability::Create(std::vector<Parameter> parameters,
                                                  const std::vector<TrainableRule>& rules) {
  Trainability trainability(std::move(parameters));
  RETURN_IF_ERROR(trainability.Check(rules));
  trainability.Set(rules);
  return trainability;
}

std::vector<size_t> Trainability::Deciders(const std::vector<TrainableRule>& rules) const {
  std::vector<size_t> deciders(parameters_.size(), kNone);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].can_be_trained) continue;
    for (size_t rule = rules.size(); rule-- > 0 && deciders[i] == kNone;) {
      if (GlobMatches(rules[rule].pattern, parameters_[i].name)) deciders[i] = rule;
    }
  }
  return deciders;
}

Mask Trainability::MaskOf(const std::vector<TrainableRule>& rules) const {
  const std::vector<size_t> deciders = Deciders(rules);
  Mask mask;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    mask.push_back(deciders[i] == kNone ? parameters_[i].trained : !rules[deciders[i]].freeze);
  }
  return mask;
}

absl::Status Trainability::Check(const std::vector<TrainableRule>& rules) const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) names.push_back(parameter.name);
  Problems problems;
  for (const TrainableRule& rule : rules) {
    bool fits = false;
    bool fits_any = false;
    for (const Parameter& parameter : parameters_) {
      if (!GlobMatches(rule.pattern, parameter.name)) continue;
      fits_any = true;
      fits |= parameter.can_be_trained;
    }
    if (fits) continue;
    if (fits_any) {
      problems.Add(absl::StrCat(
          "'", rule.pattern,
          "' fits only parameters that are neither float32 nor float64, which are not trained"));
      continue;
    }
    // A hidden problem gets no similar name, because the search takes long.
    const bool shown = problems.count() < Problems::kShown;
    const std::string near = shown ? jobfile::NearPattern(rule.pattern, names) : "";
    problems.Add(absl::StrCat("no parameter has a name that matches '", rule.pattern, "'",
                              near.empty() ? "" : absl::StrCat("; did you mean '", near, "'?")));
  }
  if (problems.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(problems.Text());
}

void Trainability::Set(std::vector<TrainableRule> rules) {
  const std::vector<size_t> deciders = Deciders(rules);
  std::vector<bool> decides(rules.size());
  for (const size_t rule : deciders) {
    if (rule != kNone) decides[rule] = true;
  }
  mask_ = MaskOf(rules);
  rules_.clear();
  for (size_t i = 0; i < rules.size(); ++i) {
    if (decides[i]) rules_.push_back(std::move(rules[i]));
  }
}

absl::StatusOr<Mask> Trainability::With(const std::vector<TrainableRule>& rules) const {
  RETURN_IF_ERROR(Check(rules));
  std::vector<TrainableRule> all = rules_;
  all.insert(all.end(), rules.begin(), rules.end());
  return MaskOf(all);
}

absl::Status Trainability::Add(const std::vector<TrainableRule>& rules) {
  RETURN_IF_ERROR(Check(rules));
  std::vector<TrainableRule> all = rules_;
  all.insert(all.end(), rules.begin(), rules.end());
  Set(std::move(all));
  ++version_;
  return absl::OkStatus();
}

void Trainability::Take(const Mask& mask) {
  std::vector<TrainableRule> all = rules_;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != mask_[i]) all.push_back({.freeze = !mask[i], .pattern = parameters_[i].name});
  }
  Set(std::move(all));
  ++version_;
}

absl::Status Trainability::Restore(int64_t version, const std::vector<TrainableRule>& rules) {
  RETURN_IF_ERROR(Check(rules));
  Set(rules);
  version_ = version;
  return absl::OkStatus();
}

int64_t TrainedElements(const std::vector<Trainability::Parameter>& parameters, const Mask& mask) {
  int64_t elements = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (mask[i]) elements += parameters[i].elements;
  }
  return elements;
}

int64_t MaskHash(const Mask& mask) {
  std::string bytes;
  for (const bool trained : mask) bytes.push_back(trained ? '1' : '0');
  return static_cast<int64_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

int64_t FirstDifference(const Mask& a, const Mask& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace muster
