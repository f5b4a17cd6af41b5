#include "worker/models/value_watch.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace muster::models {
namespace {

const void* StorageOf(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

ValueWatch::ValueWatch(const Model& model, Mode mode) : model_(model), mode_(mode) {}

void ValueWatch::Run(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Pause pause;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    SeeAll(op, (*stack)[first + i], alias != nullptr && alias->isWrite());
  }
  op.callBoxed(stack);
}

void ValueWatch::SeeAll(const c10::OperatorHandle& op, const c10::IValue& value, bool writes) {
  if (value.isTensor()) {
    See(op.schema().name(), value.toTensor(), writes);
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) SeeAll(op, one, writes);
  }
}

void ValueWatch::Add(const char* what, const std::string& name, const at::Tensor& tensor) {
  const std::string text = absl::StrCat(what, " '", name, "'");
  names_.emplace(tensor.unsafeGetTensorImpl(), text);
  if (const void* storage = StorageOf(tensor); storage != nullptr) {
    residents_[storage].push_back({BytesOf(tensor), text});
  }
}

ValueWatch::ByteRange ValueWatch::BytesOf(const at::Tensor& tensor) {
  // A nested tensor has no strides and counts as all of its storage.
  if (tensor.is_nested()) return {0, std::numeric_limits<int64_t>::max()};
  const auto size = static_cast<int64_t>(tensor.itemsize());
  const int64_t first = tensor.storage_offset();
  if (tensor.numel() == 0) return {first * size, first * size};
  int64_t last = first;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {first * size, (last + 1) * size};
}

std::string ValueWatch::NameOf(const at::Tensor& argument) {
  if (names_.empty()) {
    for (const auto& [name, tensor] : model_.Parameters()) Add("parameter", name, tensor);
    for (const auto& [name, tensor] : model_.Buffers()) Add("buffer", name, tensor);
  }
  const auto itself = names_.find(argument.unsafeGetTensorImpl());
  if (itself != names_.end()) return itself->second;
  const auto in_storage = residents_.find(StorageOf(argument));
  if (in_storage == residents_.end()) return "";
  const ByteRange bytes = BytesOf(argument);
  for (const Resident& resident : in_storage->second) {
    const bool shared =
        std::max(bytes.begin, resident.bytes.begin) < std::min(bytes.end, resident.bytes.end);
    if (shared) return resident.name;
  }
  return "";
}

void ValueWatch::See(const std::string& operation, const at::Tensor& argument, bool writes) {
  if (!argument.defined()) return;
  if (mode_ == Mode::kNote && (written_ || !writes)) return;
  const std::string name = NameOf(argument);
  if (name.empty()) return;
  written_ |= writes;
  if (mode_ == Mode::kNote) return;
  const std::string why =
      absl::StrCat("a FlagHook freezes and unfreezes parameters and does nothing else, but it ",
                   writes ? "writes " : "uses ", name, " (", operation,
                   "); derive from StepHook to change values");
  if (refusal_.empty()) refusal_ = why;
  throw ModelError(why);
}

}  // namespace muster::models
