// The settings of each optimizer, and the state that it keeps. Pure.
#ifndef MUSTER_WORKER_OPTIM_OPTIONS_H_
#define MUSTER_WORKER_OPTIM_OPTIONS_H_

#include <string>
#include <variant>
#include <vector>

namespace muster::optim {

// The options of each optimizer, which equal the messages in job_spec.proto, with the same rules.
// `weight_decay` is for parameters without a weight decay of their own.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  friend bool operator==(const AdamWOptions&, const AdamWOptions&) = default;
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  friend bool operator==(const AdamOptions&, const AdamOptions&) = default;
};

struct SgdOptions {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  friend bool operator==(const SgdOptions&, const SgdOptions&) = default;
};

struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;
  friend bool operator==(const LionOptions&, const LionOptions&) = default;
};

struct AdadeltaOptions {
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0.0;
  friend bool operator==(const AdadeltaOptions&, const AdadeltaOptions&) = default;
};

using OptimizerOptions =
    std::variant<AdamWOptions, SgdOptions, LionOptions, AdamOptions, AdadeltaOptions>;

// The name in job files: "adamw".
std::string KindOf(const OptimizerOptions& options);

double WeightDecayOf(const OptimizerOptions& options);
void SetWeightDecay(double weight_decay, OptimizerOptions* options);

// A kind of state that an optimizer keeps for each of its parameters.
struct StateSlot {
  std::string name;     // "exp_avg" (docs/reference/checkpoint-format.md)
  bool scalar = false;  // a number for each parameter; otherwise for each element
  friend bool operator==(const StateSlot&, const StateSlot&) = default;
};

// The slots that an optimizer with these options keeps for each parameter.
std::vector<StateSlot> SlotsOf(const OptimizerOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIONS_H_
