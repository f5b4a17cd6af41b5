// Runs code that uses parameters without memory (deferred_values.h), for example a first small
// forward. Each operation finds the values of the parameters among its arguments; no other values
// are in memory.
//
//   const ValuesOnDemand values(model.Parameters(), deferred);
//   model.Logits(inputs, context);
//
// Every operation brings the values, even an operation that computes nothing, such as a view.
// Values stay until the next operation that uses other parameters. Asking for the address of a
// parameter's memory outside of an operation throws c10::Error. Values written to a parameter are
// lost.
//
// Threading: belongs to the thread that made the object.
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
  // `values`: must outlive this object; null if all parameters have memory.
  ValuesOnDemand(const std::vector<Parameter>& parameters, const DeferredValues* values);
  ~ValuesOnDemand();
  ValuesOnDemand(const ValuesOnDemand&) = delete;
  ValuesOnDemand& operator=(const ValuesOnDemand&) = delete;

 private:
  using Storages = std::set<c10::StorageImpl*>;

  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  // Adds the storages of parameters in an argument.
  void Find(const c10::IValue& value, Storages* found) const;
  // Makes these storages the only ones with values.
  void Bring(const Storages& wanted);

  const DeferredValues* const values_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> parameters_;  // those without memory
  Storages filled_;
  std::optional<Scope> scope_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VALUES_ON_DEMAND_H_
