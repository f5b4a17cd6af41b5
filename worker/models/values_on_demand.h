// Runs code that uses parameters without memory (deferred_values.h), such as a first small forward:
// each operation finds the values of the parameters among its arguments, and no others are in
// memory.
//
//   const ValuesOnDemand values(model.Parameters(), deferred);
//   model.Logits(inputs, context);
//
// An operation that computes nothing, such as a view, brings the values, too. Values stay until the
// next operation that uses other parameters. Code that asks for the address of a parameter's memory
// outside of an operation gets a c10::Error. What is written to a parameter is lost.
//
// Threading: it belongs to the thread that made it.
#ifndef MUSTER_WORKER_MODELS_VALUES_ON_DEMAND_H_
#define MUSTER_WORKER_MODELS_VALUES_ON_DEMAND_H_

#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/models/deferred_values.h"
#include "worker/models/operation_watch.h"
#include "worker/models/unit.h"

namespace muster::models {

class ValuesOnDemand : private OperationWatch {
 public:
  // `values`: null if all parameters have memory. It outlives this object.
  ValuesOnDemand(const std::vector<Parameter>& parameters, const DeferredValues* values);
  ~ValuesOnDemand();
  ValuesOnDemand(const ValuesOnDemand&) = delete;
  ValuesOnDemand& operator=(const ValuesOnDemand&) = delete;

 private:
  using Storages = std::set<c10::StorageImpl*>;

  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  // Adds the storages of parameters in an argument.
  void Find(const c10::IValue& value, Storages* found) const;
  // Only these have their values then.
  void Bring(const Storages& wanted);

  const DeferredValues* const values_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> parameters_;  // those without memory
  Storages filled_;
  std::optional<Scope> scope_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VALUES_ON_DEMAND_H_
