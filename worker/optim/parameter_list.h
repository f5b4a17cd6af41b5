// The code that the optimizers share: the list of parameters, and the gradients of a step.
#ifndef MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
#define MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// Parameters of one bucket with equal settings, which one fused call updates.
struct ParameterClass {
  size_t bucket = 0;
  at::ScalarType type = at::kFloat;
  double weight_decay = 0;
  double lr_scale = 1;
  std::vector<size_t> members;  // indices, rising
};

struct ParameterList {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;  // the same order
  // The same order; each empty, or one tensor for each slot.
  std::vector<std::vector<at::Tensor>> states;
  // Each parameter is in one; in the order of their first members.
  std::vector<ParameterClass> classes;
};

// `options`: those of the optimizer. INVALID_ARGUMENT: a parameter is not dense float32 or float64,
// is on another device than the first one, appears twice, has a weight decay or lr_scale below 0,
// or a state that does not fit the slots; the message names it.
absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters,
                                                const OptimizerOptions& options);

// Members of a class, or all of them, that one call updates.
struct ClassGradients {
  size_t number = 0;  // index of the class in the list
  // Their positions in ParameterClass::members, rising; empty: all members.
  std::vector<size_t> chosen;
  std::vector<at::Tensor> gradients;  // in the order of these members
  at::Tensor skip;                    // as Optimizer::Step's, for these members

  // The position of the member to which gradients[k] belongs.
  size_t position(size_t k) const { return chosen.empty() ? k : chosen[k]; }
};

// The gradients of the classes of one bucket; nullopt: of all classes. `skip` and `unused`: as
// Optimizer::Step's. On the CPU a parameter that is not updated is left out. On another device,
// where only the device knows, a parameter with a scalar in `unused` is an entry of its own.
// FAILED_PRECONDITION: one of their parameters, which the message names, has no gradient, or one of
// another shape or type.
absl::StatusOr<std::vector<ClassGradients>> Gradients(const ParameterList& parameters,
                                                      std::optional<size_t> bucket,
                                                      const at::Tensor& skip = {},
                                                      absl::Span<const at::Tensor> unused = {});

// tensor = value, if `skip` is not 1.
void Assign(at::Tensor tensor, const at::Tensor& value, const at::Tensor& skip);

// Optimizer::Step's `skip` as LibTorch's fused calls take it: nullopt if it is undefined.
inline std::optional<at::Tensor> Given(const at::Tensor& skip) {
  return skip.defined() ? std::optional(skip) : std::nullopt;
}

// An optimizer of such a list, with its state.
class ListOptimizer : public Optimizer {
 public:
  std::vector<NamedTensor> State() override;
  absl::Status CheckGradients(std::optional<size_t> bucket) const override;

 protected:
  // The state of a parameter is what was given with it, or zeros, whose memory counts as moments.
  ListOptimizer(ParameterList parameters, const OptimizerOptions& options);

  const ParameterList& list() const { return list_; }
  // The tensors of one slot, one for each parameter. `slot`: its position in SlotsOf(options).
  const std::vector<at::Tensor>& state(size_t slot) const { return states_[slot]; }
  // The tensors of the members that one call updates: the parameters, then their state by slot.
  std::vector<std::vector<at::Tensor>> TensorsOf(const ClassGradients& of) const;

 private:
  const ParameterList list_;
  const std::vector<StateSlot> slots_;
  std::vector<std::vector<at::Tensor>> states_;  // by slot
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
