// The rules for the trained parameters of a model, by name, with versions. Pure.
#ifndef MUSTER_COMMON_TRAINABILITY_TRAINABILITY_H_
#define MUSTER_COMMON_TRAINABILITY_TRAINABILITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

struct TrainableRule {
  bool freeze = true;   // otherwise unfreeze
  std::string pattern;  // of parameters' names (common/glob)
  friend bool operator==(const TrainableRule&, const TrainableRule&) = default;
};

// The trained parameters: true or false by parameter.
using Mask = std::vector<bool>;

class Trainability {
 public:
  struct Parameter {
    std::string name;
    // The value from the model, which counts if no rule matches the parameter.
    bool trained = true;
    // True for float32 and float64. Rules do not apply to other types.
    bool can_be_trained = true;
    int64_t elements = 0;
  };
  // Makes version 1, with the rules of the job file. INVALID_ARGUMENT: see With.
  static absl::StatusOr<Trainability> Create(std::vector<Parameter> parameters,
                                             const std::vector<TrainableRule>& rules);

  // The version, from 1; each change adds 1.
  int64_t version() const { return version_; }
  // The rules that decide something, in order. The last rule that matches a parameter decides.
  const std::vector<TrainableRule>& rules() const { return rules_; }
  const Mask& mask() const { return mask_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Returns the mask after these rules are added at the end. INVALID_ARGUMENT: patterns that match
  // no parameter (with similar names), or no parameter that can be trained. The message names at
  // most three, with the number of the others.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const;

  // Adds the rules, which makes the next version. Errors: those of With, after which nothing is
  // changed.
  absl::Status Add(const std::vector<TrainableRule>& rules);
  // Adds rules with single names so that the result is this mask, for changes that model code made.
  void Take(const Mask& mask);
  // Sets version and rules as in a checkpoint. INVALID_ARGUMENT: see With.
  absl::Status Restore(int64_t version, const std::vector<TrainableRule>& rules);

 private:
  explicit Trainability(std::vector<Parameter> parameters);
  // The index of the deciding rule of each parameter, if only these rules count; npos: none.
  std::vector<size_t> Deciders(const std::vector<TrainableRule>& rules) const;
  Mask MaskOf(const std::vector<TrainableRule>& rules) const;
  absl::Status Check(const std::vector<TrainableRule>& rules) const;
  void Set(std::vector<TrainableRule> rules);

  std::vector<Parameter> parameters_;
  int64_t version_ = 1;
  std::vector<TrainableRule> rules_;
  Mask mask_;
};

// The number of elements of the trained parameters.
int64_t TrainedElements(const std::vector<Trainability::Parameter>& parameters, const Mask& mask);

// A hash that ranks compare.
int64_t MaskHash(const Mask& mask);
// The index of the first parameter in which the masks differ; -1: none.
int64_t FirstDifference(const Mask& a, const Mask& b);

}  // namespace muster

#endif  // MUSTER_COMMON_TRAINABILITY_TRAINABILITY_H_
