#include "worker/models/values_on_demand.h"

#include <ATen/core/ivalue.h>

#include "worker/device/memory.h"

namespace muster::models {
namespace {

constexpr char kWhy[] =
    "the values of this parameter are in memory only while an operation of LibTorch uses it";

}  // namespace

ValuesOnDemand::ValuesOnDemand(const std::vector<Parameter>& parameters,
                               const DeferredValues* values)
    : values_(values) {
  if (values == nullptr) return;
  for (const Parameter& parameter : parameters) {
    if (!values->Has(parameter.tensor)) continue;
    c10::StorageImpl& storage = *parameter.tensor.storage().unsafeGetStorageImpl();
    device::Withhold(storage, kWhy);
    storage.set_nbytes(parameter.tensor.nbytes());
    parameters_.emplace(&storage, parameter.tensor);
  }
  if (!parameters_.empty()) scope_.emplace(static_cast<OperationWatch*>(this));
}

ValuesOnDemand::~ValuesOnDemand() {
  scope_.reset();
  for (const auto& [storage, tensor] : parameters_) {
    device::GiveNothing(*tensor.storage().unsafeGetStorageImpl());
  }
}

void ValuesOnDemand::Run(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Pause pause;
  Storages wanted;
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    Find((*stack)[i], &wanted);
  }
  if (!wanted.empty()) Bring(wanted);
  op.callBoxed(stack);
}

void ValuesOnDemand::Find(const c10::IValue& value, Storages* found) const {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.has_storage()) return;
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (parameters_.contains(storage)) found->insert(storage);
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) Find(one, found);
  }
}

void ValuesOnDemand::Bring(const Storages& wanted) {
  std::erase_if(filled_, [&wanted](c10::StorageImpl* storage) {
    if (wanted.contains(storage)) return false;
    device::Withhold(*storage, kWhy);
    return true;
  });
  for (c10::StorageImpl* const storage : wanted) {
    if (!filled_.insert(storage).second) continue;
    at::Tensor values = values_->Of(parameters_.at(storage));
    if (values.storage().nbytes() != values.nbytes()) values = values.clone();
    device::Give(*storage, values);
  }
}

}  // namespace muster::models
