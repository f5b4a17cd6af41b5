// Gathers the units of a model around their forwards and their backwards, and frees them
// afterwards. fsdp.h says when. The strategy (fsdp.cc) creates the object; the model enters through
// MakeContext.
//
// Threading: one thread, which runs forwards and backwards.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_CALLS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/fsdp_options.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/gradients/sliced_gradients.h"

namespace muster::parallel {

class UnitCalls {
 public:
  // plan: of the units. units_of_groups: the unit of each group of `gradients`, as an index in the
  // plan. device: of the model. `whole` and `gradients` must outlive this object. This object must
  // outlive its contexts and the graphs of their forwards.
  UnitCalls(const std::vector<PlannedUnit>& plan, const std::vector<size_t>& units_of_groups,
            const FsdpOptions& options, c10::DeviceType device, WholeUnits* whole,
            SlicedGradients* gradients);

  // Returns a context for forwards of the model.
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode, at::Generator generator);

  // Frees all units. No backward of an earlier forward may follow.
  void FreeAll();
  // Frees all units except the root and the first unit of the next forward. No backward of an
  // earlier forward may follow.
  void FreeAfterPass();
  // Starts to gather the root and the first unit of the next forward.
  void GatherAhead();

 private:
  class Context;
  struct Observed;
  using Forward = std::function<models::Tensors(const models::Tensors&)>;

  struct UnitState {
    size_t number = 0;              // in the plan
    std::vector<size_t> trainable;  // the numbers of its trainable groups
    int running = 0;                // number of its forwards that run now, with nested ones
    // Number of its calls that have an output with a gradient hook and whose backward has not
    // ended.
    int backwards = 0;
    int open = 0;  // number of these calls whose backward has begun
    // Whether a call of the unit may bring gradients without a call of AfterBackward. Its backward
    // reads no parameters, or the call ran without a graph, as in a unit that is recomputed.
    bool unobserved = false;
  };
  struct Call {
    UnitState* unit = nullptr;
    bool backward = false;  // its backward has not ended
    bool begun = false;     // its backward has begun, at any of its outputs
  };

  // Runs a unit of the model. A planned unit is gathered before the forward, and before its
  // backward if the backward reads its parameters.
  models::Tensors Run(models::Unit& unit, const models::Tensors& inputs, bool backward_reads,
                      const Forward& forward);
  models::Tensors RunRoot(UnitState& root, const models::Tensors& inputs, const Forward& forward);
  // name: of the unit, for errors.
  models::Tensors RunUnit(UnitState& unit, const std::string& name, const models::Tensors& inputs,
                          bool backward_reads, const Forward& forward);
  void BeginForward(UnitState& unit);

  // Returns the inputs, with which the unit is then called. AfterBackward(call) runs when the
  // gradients of all returned tensors that require one are complete. This is after the backward of
  // all operations that used the inputs, and before backward continues.
  models::Tensors ObserveInputs(const models::Tensors& inputs, int64_t call);
  // Makes BeforeBackward(call) run for each output that requires a gradient: when the gradient of
  // the output is complete, before the backward of the operations that computed the output. Returns
  // the number of these outputs.
  int ObserveOutputs(const models::Tensors& outputs, int64_t call);
  // An exception from these two functions ends backward, which throws it on. call: index in calls_.
  void BeforeBackward(int64_t call);
  void AfterBackward(int64_t call);

  // Waits until the unit is gathered. Throws ContextError if the gather fails.
  void AwaitWhole(const UnitState& unit);
  // Starts to gather a unit that is needed soon, within the limit of whole units.
  void Prefetch(const UnitState& unit);
  void PrefetchAfter(const UnitState& unit);
  void ForgetCalls();
  // The first unit below the root in the newest forward of the root; null if there was none.
  const UnitState* first() const { return current_order_.size() > 1 ? current_order_[1] : nullptr; }

  const bool reshard_after_forward_;
  const bool in_bfloat16_;
  const c10::DeviceType device_;
  WholeUnits* const whole_;
  SlicedGradients* const gradients_;
  std::vector<UnitState> units_;  // as in the plan; never resized
  std::unordered_map<const models::Unit*, UnitState*> unit_of_;
  // The calls of units below the root in this micro-batch: only calls whose backward reads
  // parameters.
  std::vector<Call> calls_;
  std::vector<UnitState*> current_order_;  // the units in the order of the root's newest forward
  std::vector<UnitState*> order_;          // the same for the forward before it
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_CALLS_H_
