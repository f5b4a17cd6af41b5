// Which parameters of a model are trained: rules over their names, versioned. Pure.
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

// By parameter: whether it is trained.
using Mask = std::vector<bool>;

class Trainability {
 public:
  struct Parameter {
    std::string name;
    // As the model made it. It stays so if no rule matches the parameter.
    bool trained = true;
    // True for float32 and float64. Rules do not apply to other types.
    bool can_be_trained = true;
    int64_t elements = 0;
  };
  // Version 1, with the rules of the job file. INVALID_ARGUMENT as With.
  static absl::StatusOr<Trainability> Create(std::vector<Parameter> parameters,
                                             const std::vector<TrainableRule>& rules);

  // Counts from 1; each change adds 1.
  int64_t version() const { return version_; }
  // In order; the last rule that matches a parameter decides. Only rules that decide something.
  const std::vector<TrainableRule>& rules() const { return rules_; }
  const Mask& mask() const { return mask_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The mask that would result from adding these rules at the end. INVALID_ARGUMENT names the
  // patterns that match no parameter, with similar names, and those that match no parameter that
  // can be trained: at most three, with the number of the others.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const;

  // Adds the rules, which makes the next version. Errors: those of With; then nothing is changed.
  absl::Status Add(const std::vector<TrainableRule>& rules);
  // Adds rules with single names such that the result is this mask, for changes that model code
  // made.
  void Take(const Mask& mask);
  // Sets version and rules as in a checkpoint. INVALID_ARGUMENT as With.
  absl::Status Restore(int64_t version, const std::vector<TrainableRule>& rules);

 private:
  explicit Trainability(std::vector<Parameter> parameters);
  // By parameter: the index of the rule that decides, considering these rules only; npos: none.
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
// Index of the first parameter in which they differ; -1: none.
int64_t FirstDifference(const Mask& a, const Mask& b);

}  // namespace muster

#endif  // MUSTER_COMMON_TRAINABILITY_TRAINABILITY_H_
