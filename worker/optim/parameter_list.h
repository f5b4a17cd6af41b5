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
  // The states by member; each is empty, or has a tensor for each slot.
  std::vector<std::vector<at::Tensor>> states;
  // The classes, ordered by their first members. Each parameter is in exactly one class.
  std::vector<ParameterClass> classes;
};

// `options`: those of the optimizer. INVALID_ARGUMENT, with the name of the parameter:
// - it is not dense float32 or float64, is on another device than the first one, or appears twice;
// - it has a weight decay or lr_scale below 0, or a state that does not fit the slots.
absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters,
                                                const OptimizerOptions& options);

// The members of a class that one call updates: some, or all.
struct ClassGradients {
  size_t number = 0;  // index of the class in the list
  // The positions of these members in ParameterClass::members, rising; empty: all members.
  std::vector<size_t> chosen;
  std::vector<at::Tensor> gradients;  // in the order of these members
  at::Tensor skip;                    // as Optimizer::Step's, for these members

  // The position of the member to which gradients[k] belongs.
  size_t position(size_t k) const { return chosen.empty() ? k : chosen[k]; }
};

// Returns the gradients of the classes of one bucket; nullopt: of all classes. `skip` and `unused`:
// as Optimizer::Step's. On the CPU a parameter that is not updated is left out. On another device,
// only the device knows this. Therefore a parameter with a scalar in `unused` gets its own entry.
// FAILED_PRECONDITION: a parameter, which the message names, has no gradient, or a gradient of
// another shape or type.
absl::StatusOr<std::vector<ClassGradients>> Gradients(const ParameterList& parameters,
                                                      std::optional<size_t> bucket,
                                                      const at::Tensor& skip = {},
                                                      absl::Span<const at::Tensor> unused = {});

// Assigns `value` to `tensor`, unless `skip` is 1.
void Assign(at::Tensor tensor, const at::Tensor& value, const at::Tensor& skip);

// Returns Optimizer::Step's `skip` as LibTorch's fused calls take it: nullopt if it is undefined.
inline std::optional<at::Tensor> Given(const at::Tensor& skip) {
  return skip.defined() ? std::optional(skip) : std::nullopt;
}

// An optimizer of a parameter list, with its state.
class ListOptimizer : public Optimizer {
 public:
  std::vector<NamedTensor> State() override;
  absl::Status CheckGradients(std::optional<size_t> bucket) const override;

 protected:
  // The state of a parameter is the given state, or zeros. Its memory counts as moments.
  ListOptimizer(ParameterList parameters, const OptimizerOptions& options);

  const ParameterList& list() const { return list_; }
  // The tensors of one slot, one for each parameter. `slot`: its position in SlotsOf(options).
  const std::vector<at::Tensor>& state(size_t slot) const { return states_[slot]; }
  // Returns the tensors of the members that one call updates: the parameters, then their state by
  // slot.
  std::vector<std::vector<at::Tensor>> TensorsOf(const ClassGradients& of) const;

 private:
  const ParameterList list_;
  const std::vector<StateSlot> slots_;
  std::vector<std::vector<at::Tensor>> states_;  // by slot
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
