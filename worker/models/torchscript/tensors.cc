#include "worker/models/torchscript/tensors.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace muster::models {
namespace {

using Kind = ScriptTensor::Kind;

// A place in memory and the way to read it. Files record shared tensors only to this extent.
using Place = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

Place PlaceOf(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
          tensor.strides().vec()};
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 &&
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() < EndOf(b) && b.storage_offset() < EndOf(a);
}

Kind KindOf(const c10::ClassType& type, size_t attribute, const at::Tensor& tensor) {
  if (type.is_parameter(attribute)) return Kind::kParameter;
  const bool kept = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kLong;
  return type.is_buffer(attribute) && kept ? Kind::kBuffer : Kind::kConstant;
}

}  // namespace

std::vector<ScriptTensor> FindTensors(const torch::jit::Module& top,
                                      const AssignedTensors& assigned) {
  std::vector<ScriptTensor> found;
  std::map<Place, size_t> known;
  for (const auto& [path, module] : top.named_modules()) {
    const auto owner = module._ivalue();
    const auto type = owner->type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      if (!owner->getSlot(i).isTensor()) continue;
      const at::Tensor tensor = owner->getSlot(i).toTensor();
      if (!tensor.defined() || !tensor.has_storage()) continue;
      const auto [at, inserted] = known.emplace(PlaceOf(tensor), found.size());
      if (inserted) found.push_back({.tensor = tensor});
      ScriptTensor& entry = found[at->second];
      entry.names.push_back(path.empty() ? type->getAttributeName(i)
                                         : absl::StrCat(path, ".", type->getAttributeName(i)));
      entry.slots.push_back({owner, i});
      entry.children.insert(path.substr(0, path.find('.')));
      entry.kind = std::max(entry.kind, KindOf(*type, i, tensor));
      if (assigned.count({type->name()->qualifiedName(), type->getAttributeName(i)}) > 0)
        entry.assigned = true;
    }
  }
  return found;
}

void CheckTensors(const std::vector<ScriptTensor>& tensors, Problems* problems) {
  bool trains = false;
  for (const ScriptTensor& one : tensors) {
    if (one.kind != Kind::kParameter) continue;
    trains = true;
    const std::string name = absl::StrCat("parameter '", one.names.front(), "'");
    if (one.tensor.scalar_type() != at::kFloat || one.tensor.layout() != at::kStrided) {
      problems->Add(
          absl::StrCat(name, ": expected Float, found ", c10::toString(one.tensor.scalar_type())));
    } else if (!one.tensor.requires_grad()) {
      problems->Add(
          absl::StrCat(name,
                       ": expected one that requires a gradient, found a frozen one; save it "
                       "with requires_grad, or as a buffer"));
    }
  }
  if (!trains) {
    problems->Add(
        "expected parameters to train, found none (torch.jit.freeze makes them constants)");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!Overlap(tensors[i].tensor, tensors[j].tensor)) continue;
      problems->Add(absl::StrCat(
          "'", tensors[j].names.front(), "' and '", tensors[i].names.front(),
          "': share a part of their memory; expected tensors that share all or nothing"));
    }
  }
}

void DeferParameters(std::vector<ScriptTensor>* tensors, FileStorages* storages,
                     DeferredValues* deferred) {
  const auto storage_of = [](const ScriptTensor& one) -> const c10::StorageImpl* {
    return one.tensor.storage().unsafeGetStorageImpl();
  };
  std::set<const c10::StorageImpl*> without;
  for (const ScriptTensor& one : *tensors) {
    if (one.kind == Kind::kParameter && storages->Has(one.tensor)) without.insert(storage_of(one));
  }
  for (const ScriptTensor& one : *tensors) {
    if (one.kind != Kind::kParameter || !storages->Has(one.tensor)) without.erase(storage_of(one));
  }
  storages->Settle(without);
  for (ScriptTensor& one : *tensors) {
    if (!without.contains(storage_of(one))) continue;
    one.tensor = deferred->AddInRanges(one.tensor.sizes().vec(), storages->Reader(one.tensor));
    one.deferred = true;
    one.tensor.requires_grad_(true);
    for (const ScriptSlot& slot : one.slots) slot.Set(one.tensor);
  }
}

void Separate(std::vector<ScriptTensor>* tensors) {
  for (ScriptTensor& one : *tensors) {
    if (one.kind == Kind::kConstant || one.deferred) continue;
    one.tensor = one.tensor.detach().clone(at::MemoryFormat::Contiguous);
    if (one.kind == Kind::kParameter) one.tensor.requires_grad_(true);
    for (const ScriptSlot& slot : one.slots) slot.Set(one.tensor);
  }
}

}  // namespace muster::models
