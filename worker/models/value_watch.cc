#include "worker/models/value_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "absl/strings/str_cat.h"

namespace muster::models {
namespace {

// A key that no tensor has and nothing else in this process uses: operations take their way over it
// in threads that include it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local ValueWatch* current = nullptr;

void SeeAll(const c10::OperatorHandle& op, const c10::IValue& value, bool writes) {
  if (value.isTensor()) {
    current->Seen(op.schema().name(), value.toTensor(), writes);
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) SeeAll(op, one, writes);
  }
}

void WatchAnOperation(const c10::OperatorHandle& op, c10::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; current != nullptr && i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    SeeAll(op, (*stack)[first + i], alias != nullptr && alias->isWrite());
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  op.callBoxed(stack);
}

// For the whole process, before any thread runs operations; it acts only in threads that include
// the key.
const c10::RegistrationHandleRAII registered = c10::Dispatcher::singleton().registerFallback(
    kKey, c10::KernelFunction::makeFromBoxedFunction<&WatchAnOperation>(), "ValueWatch");

const void* MemoryOf(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

ValueWatch::ValueWatch(const Model& model, Mode mode)
    : model_(model), mode_(mode), guard_(c10::DispatchKeySet(kKey)) {
  current = this;
}

ValueWatch::~ValueWatch() { current = nullptr; }

ValueWatch* ValueWatch::Current() { return current; }

void ValueWatch::Add(const char* what, const std::string& name, const at::Tensor& tensor) {
  const std::string text = absl::StrCat(what, " '", name, "'");
  names_.emplace(tensor.unsafeGetTensorImpl(), text);
  // Of several in the same memory the first one: the tensor itself is looked for before.
  if (const void* memory = MemoryOf(tensor); memory != nullptr) names_.emplace(memory, text);
}

std::string ValueWatch::NameOf(const at::Tensor& argument) {
  if (names_.empty()) {
    for (const auto& [name, tensor] : model_.Parameters()) Add("parameter", name, tensor);
    for (const auto& [name, tensor] : model_.Buffers()) Add("buffer", name, tensor);
  }
  auto found = names_.find(argument.unsafeGetTensorImpl());
  if (found == names_.end()) found = names_.find(MemoryOf(argument));
  return found == names_.end() ? "" : found->second;
}

void ValueWatch::Seen(const std::string& operation, const at::Tensor& argument, bool writes) {
  if (!argument.defined()) return;
  if (mode_ == Mode::kNote && (written_ || !writes)) return;
  const std::string name = NameOf(argument);
  if (name.empty()) return;
  written_ |= writes;
  if (mode_ == Mode::kNote) return;
  throw ModelError(
      absl::StrCat("a FlagHook freezes and unfreezes parameters and does nothing else, but it ",
                   writes ? "writes " : "uses ", name, " (", operation,
                   "); derive from StepHook to change values"));
}

}  // namespace muster::models
