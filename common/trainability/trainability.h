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
  bool freeze = true;   // else unfreeze
  std::string pattern;  // of parameters' names (common/glob)
  friend bool operator==(const TrainableRule&, const TrainableRule&) = default;
};

// By parameter: whether it is trained.
using Mask = std::vector<bool>;

class Trainability {
 public:
  struct Parameter {
    std::string name;
    // As the model was made; no rule changes what no rule fits.
    bool trained = true;
    // float32 or float64. Rules pass over the others.
    bool can_be_trained = true;
    int64_t elements = 0;
  };
  // Version 1, with the rules of the job file. INVALID_ARGUMENT as With.
  static absl::StatusOr<Trainability> Create(std::vector<Parameter> parameters,
                                             const std::vector<TrainableRule>& rules);

  // From 1; each change makes one more.
  int64_t version() const { return version_; }
  // In order; the last that fits a parameter decides. Only those that decide anything.
  const std::vector<TrainableRule>& rules() const { return rules_; }
  const Mask& mask() const { return mask_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // What the mask would be with these rules behind the others. INVALID_ARGUMENT names the patterns
  // that fit no parameter, with near ones, and those that fit none that can be trained: three, and
  // how many more.
  absl::StatusOr<Mask> With(const std::vector<TrainableRule>& rules) const;

  // Adds them, the next version. Errors: those of With; nothing is changed then.
  absl::Status Add(const std::vector<TrainableRule>& rules);
  // The same of rules by name, such that the mask is this one: what model code decided.
  void Take(const Mask& mask);
  // What a checkpoint has. INVALID_ARGUMENT as With.
  absl::Status Restore(int64_t version, const std::vector<TrainableRule>& rules);

 private:
  explicit Trainability(std::vector<Parameter> parameters);
  // Of these rules alone: which decides (index, or npos: none), by parameter.
  std::vector<size_t> Deciders(const std::vector<TrainableRule>& rules) const;
  Mask MaskOf(const std::vector<TrainableRule>& rules) const;
  absl::Status Check(const std::vector<TrainableRule>& rules) const;
  void Set(std::vector<TrainableRule> rules);

  std::vector<Parameter> parameters_;
  int64_t version_ = 1;
  std::vector<TrainableRule> rules_;
  Mask mask_;
};

// The elements of those that are trained.
int64_t TrainedElements(const std::vector<Trainability::Parameter>& parameters, const Mask& mask);

// What ranks compare.
int64_t MaskHash(const Mask& mask);
// Index of the first parameter in which they differ; -1: none.
int64_t FirstDifference(const Mask& a, const Mask& b);

}  // namespace muster

#endif  // MUSTER_COMMON_TRAINABILITY_TRAINABILITY_H_
