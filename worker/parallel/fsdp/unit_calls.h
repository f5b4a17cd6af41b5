// Gathers the units of a model around their forwards and around their backwards, and frees them
// afterwards. fsdp.h says when.
//
// Threading: one thread, the one that runs forwards and backwards.
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
  // plan: of the units. units_of_groups: the unit of each group of `gradients`, an index in the
  // plan. device: of the model. `whole` and `gradients` must outlive this object, and this object
  // the contexts and the graphs of their forwards.
  UnitCalls(const std::vector<PlannedUnit>& plan, const std::vector<size_t>& units_of_groups,
            const FsdpOptions& options, c10::DeviceType device, WholeUnits* whole,
            SlicedGradients* gradients);

  // The context for forwards of the model.
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode, at::Generator generator);

  // Frees all units. No backward of an earlier forward may follow.
  void FreeAll();
  // The same, except for the root and the unit that the next forward begins with.
  void FreeAfterPass();
  // Starts to gather the root and the unit that the next forward begins with.
  void GatherAhead();

 private:
  class Context;
  struct Observed;
  using Forward = std::function<models::Tensors(const models::Tensors&)>;

  struct Unit {
    size_t number = 0;              // in the plan
    std::vector<size_t> trainable;  // the numbers of its trainable groups
    int running = 0;                // number of forwards that run now, with nested ones
    int backwards = 0;  // number of calls with a hooked output whose backward has not ended
    int open = 0;       // number of these calls whose backward has begun
    // A call of it may bring gradients of which AfterBackward says nothing: its backward reads no
    // parameters, or it ran without a graph, as it does in a unit that is recomputed.
    bool unobserved = false;
  };
  struct Call {
    Unit* unit = nullptr;
    bool backward = false;  // its backward has not ended
    bool begun = false;     // its backward has begun, by any of its outputs
  };

  // Runs a unit of the model. A planned unit is gathered before; if the backward reads its
  // parameters, it is gathered before that, too.
  models::Tensors Run(models::Unit& unit, const models::Tensors& inputs, bool backward_reads,
                      const Forward& forward);
  models::Tensors RunRoot(Unit& root, const models::Tensors& inputs, const Forward& forward);
  // name: of the unit, for errors.
  models::Tensors RunUnit(Unit& unit, const std::string& name, const models::Tensors& inputs,
                          bool backward_reads, const Forward& forward);
  void BeginForward(Unit& unit);

  // Returns the inputs, to call a unit with. AfterBackward(call) is called when the gradients of
  // all returned tensors that require one are complete, which is after the backward of all
  // operations that used them, and before backward continues.
  models::Tensors ObserveInputs(const models::Tensors& inputs, int64_t call);
  // For each output that requires a gradient, BeforeBackward(call) is called when the gradient of
  // the output is complete, and before the backward of any operation that the output was computed
  // by. Returns the number of these outputs.
  int ObserveOutputs(const models::Tensors& outputs, int64_t call);
  // An exception from these two ends the backward and is thrown by it. call: an index in calls_.
  void BeforeBackward(int64_t call);
  void AfterBackward(int64_t call);

  // Throws ContextError if the unit does not arrive.
  void AwaitWhole(const Unit& unit);
  // Starts to gather a unit that is needed soon, if the limit of whole units allows it.
  void Prefetch(const Unit& unit);
  void PrefetchAfter(const Unit& unit);
  void ForgetCalls();
  // The first unit below the root in the newest forward of the root; null: there was none.
  const Unit* first() const { return running_.size() > 1 ? running_[1] : nullptr; }

  const bool reshard_after_forward_;
  const bool in_bfloat16_;
  const c10::DeviceType device_;
  WholeUnits* const whole_;
  SlicedGradients* const gradients_;
  std::vector<Unit> units_;  // as in the plan; never resized
  std::unordered_map<const models::Unit*, Unit*> unit_of_;
  // The calls of units below the root in this micro-batch, if gradients are enabled.
  std::vector<Call> calls_;
  std::vector<Unit*> order_;    // the units in the order of the root's last finished forward
  std::vector<Unit*> running_;  // the same for the root's current forward
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_CALLS_H_
