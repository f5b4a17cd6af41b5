#include "worker/models/plugin/recording.h"

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "worker/device/memory.h"

namespace muster::models {
namespace {

constexpr char kWithout[] =
    "the model's code asks for the address of a tensor's memory, which has no values yet";

using MapTensor = std::function<at::Tensor(const at::Tensor&)>;

// Returns the value with its tensors replaced. Undefined tensors stay undefined.
c10::IValue Mapped(const c10::IValue& value, const MapTensor& map) {
  const auto one = [&map](const at::Tensor& tensor) {
    return tensor.defined() ? map(tensor) : tensor;
  };
  if (value.isTensor()) return one(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(one(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional(one(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

std::vector<at::Tensor> TensorsOf(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    Mapped(value, [&tensors](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
  }
  return tensors;
}

// Returns whether the operation only calls other operations.
bool IsComposite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Returns whether the operation returns other values than tensors.
bool GivesValues(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    const auto kind = result.type()->kind();
    return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType &&
           kind != c10::TypeKind::OptionalType;
  });
}

// Returns the first sentence of an error of LibTorch.
std::string Brief(const std::string& text) {
  return text.substr(0, std::min({text.find('\n'), text.find(". "), size_t{300}}));
}

c10::Storage NewTwin(size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                      c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta),
                      /*resizable=*/true);
}

using Geometry = Recording::Geometry;

Geometry GeometryOf(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec(),
          tensor.storage_offset()};
}

at::Tensor OnStorage(const c10::Storage& storage, const Geometry& geometry) {
  const auto key =
      storage.device_type() == c10::kMeta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(geometry.type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides,
                                                      geometry.offset);
  return tensor;
}

// Returns the number of a tensor's storage; null: none.
const size_t* Find(const std::unordered_map<const c10::StorageImpl*, size_t>& in,
                   const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto found = in.find(tensor.storage().unsafeGetStorageImpl());
  return found == in.end() ? nullptr : &found->second;
}

}  // namespace

// The arguments of an operation, with twins in place of the tensors.
struct Recording::Call {
  struct Argument {
    at::Tensor given;
    at::Tensor twin;
    c10::Storage storage;  // of the twin
    bool tracked = false;
    bool written = false;
  };
  std::vector<c10::IValue> values;
  std::vector<Argument> tensors;
  bool tracked = false;   // whether a tensor is tracked
  bool has_twins = true;  // false: an argument cannot have a twin
  bool draws = false;
  at::Generator generator;

  bool Has(const c10::Storage& storage) const {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Argument& one) { return one.storage.is_alias_of(storage); });
  }
  bool Writes(const c10::Storage& storage) const {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Argument& one) {
      return one.written && one.storage.is_alias_of(storage);
    });
  }
  // Returns whether these results, on twins, have large memory that no argument has.
  bool MakesMuch(const std::vector<c10::IValue>& results) const {
    const auto made = TensorsOf(results);
    return std::any_of(made.begin(), made.end(), [this](const at::Tensor& twin) {
      return !Has(twin.storage()) && twin.storage().nbytes() > kSmall;
    });
  }
  // Returns whether these results, on twins, are only views of arguments.
  bool OnlyViews(const std::vector<c10::IValue>& results) const {
    const auto views = TensorsOf(results);
    return std::none_of(tensors.begin(), tensors.end(),
                        [](const Argument& one) { return one.written; }) &&
           std::all_of(views.begin(), views.end(),
                       [this](const at::Tensor& twin) { return Has(twin.storage()); });
  }
};

Recording::Recording(uint64_t seed) : default_type_(c10::get_default_dtype_as_scalartype()) {
  process_.emplace().Seed(seed);
}

Recording::~Recording() = default;

size_t Recording::Track(const c10::Storage& twin) {
  by_twin_.emplace(twin.unsafeGetStorageImpl(), tracked_.size());
  tracked_.push_back({std::nullopt, twin});
  return tracked_.size() - 1;
}

at::Tensor Recording::Seen(size_t storage, const Geometry& geometry) {
  Tracked& tracked = tracked_[storage];
  const auto seen = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tracked.twin.nbytes(),
      c10::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU),
      /*resizable=*/true);
  device::Withhold(*seen, kWithout);
  tracked.seen.emplace(seen);
  by_seen_[seen.get()] = storage;
  return OnStorage(c10::Storage(seen), geometry);
}

void Recording::AddMaker(size_t storage, std::function<at::Tensor()> maker) {
  Step& step = steps_.emplace_back();
  step.maker = std::move(maker);
  step.changes = {storage};
}

at::Tensor Recording::Make(const std::vector<int64_t>& shape, std::function<at::Tensor()> maker) {
  Geometry geometry{c10::kFloat, shape, std::vector<int64_t>(shape.size()), 0};
  int64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0; elements *= shape[i]) geometry.strides[i] = elements;
  const size_t storage = Track(NewTwin(elements * sizeof(float)));
  AddMaker(storage, std::move(maker));
  return Seen(storage, geometry);
}

void Recording::Run(const c10::OperatorHandle& op, c10::Stack* stack) {
  if (!refusal_.empty()) throw Refused(refusal_);  // the code has caught the first exception
  if (IsComposite(op)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  const Pause pause;
  Call call = Inspect(op, *stack);
  try {
    if (call.tracked || call.draws) {
      if (GivesValues(op)) throw Refused("asks for a value of a tensor that has none yet");
      Record(op, call, RunOnTwins(op, call), stack);
      return;
    }
    std::optional<std::vector<c10::IValue>> twins;
    try {
      twins = RunOnTwins(op, call);
    } catch (const Refused&) {  // the operation can still run at once
    }
    if (twins.has_value() && call.MakesMuch(*twins)) {
      Record(op, call, *twins, stack);
      return;
    }
  } catch (const Refused& refused) {
    refusal_ = absl::StrCat(op.schema().name(), ": ", refused.what());
    throw Refused(refusal_);
  }
  op.callBoxed(stack);
}

Recording::Call Recording::Inspect(const c10::OperatorHandle& op, const c10::Stack& stack) const {
  const auto& arguments = op.schema().arguments();
  Call call;
  call.draws = op.hasTag(at::Tag::nondeterministic_seeded);
  std::map<const c10::StorageImpl*, c10::Storage> own;  // twins of the code's own storages
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (value.isGenerator()) {
      call.generator = value.toGenerator();
      call.draws = true;
    }
    call.has_twins &= !value.isStorage();
    const auto* alias = arguments[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    call.values.push_back(Mapped(value, [&](const at::Tensor& given) {
      if (!given.has_storage() || !given.is_cpu() || given.layout() != at::kStrided) {
        call.has_twins = false;
        return given;
      }
      const size_t* const tracked = Find(by_seen_, given);
      c10::Storage storage;
      if (tracked != nullptr) {
        storage = tracked_[*tracked].twin;
      } else {
        c10::Storage& twin = own[given.storage().unsafeGetStorageImpl()];
        if (!twin) twin = NewTwin(given.storage().nbytes());
        storage = twin;
      }
      const at::Tensor twin = OnStorage(storage, GeometryOf(given));
      call.tensors.push_back({given, twin, storage, tracked != nullptr, written});
      call.tracked |= tracked != nullptr;
      return twin;
    }));
  }
  return call;
}

std::vector<c10::IValue> Recording::RunOnTwins(const c10::OperatorHandle& op,
                                               const Call& call) const {
  if (!call.has_twins) throw Refused("has arguments that are no tensors of the CPU with strides");
  const auto& arguments = op.schema().arguments();
  c10::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue value = call.values[i];
    if (value.isGenerator()) value = c10::IValue();
    if (arguments[i].name() == "device") {
      if (value.isDevice() && !value.toDevice().is_cpu()) throw Refused("is for another device");
      if (value.isDevice() || call.tensors.empty()) value = c10::Device(c10::kMeta);
    }
    stack.push_back(std::move(value));
  }
  const at::NoGradGuard no_grad;
  try {
    op.callBoxed(&stack);
  } catch (const std::exception& error) {
    throw Refused(absl::StrCat("cannot be recorded: ", Brief(error.what())));
  }
  for (const Call::Argument& one : call.tensors) {
    if (GeometryOf(one.twin) != GeometryOf(one.given) ||
        !one.twin.storage().is_alias_of(one.storage)) {
      throw Refused("changes the shape or the memory of a tensor");
    }
  }
  return stack;
}

void Recording::Record(const c10::OperatorHandle& op, const Call& call,
                       const std::vector<c10::IValue>& twins, c10::Stack* stack) {
  if (call.OnlyViews(twins)) {  // reads no value
    try {
      op.callBoxed(stack);
    } catch (const std::exception& error) {
      throw Refused(absl::StrCat("cannot be recorded: ", Brief(error.what())));
    }
    return;
  }
  if (c10::InferenceMode::is_enabled()) throw Refused("runs in inference mode");
  if (c10::get_default_dtype_as_scalartype() != default_type_) {
    throw Refused("runs while the default type is another one");
  }
  Step step;
  step.operation = op;
  step.arguments = call.values;
  for (const Call::Argument& one : call.tensors) {
    if (c10::GradMode::is_enabled() && one.given.requires_grad()) {
      throw Refused("would be a part of a gradient's graph");
    }
    const size_t* known = Find(by_twin_, one.twin);
    const size_t storage =
        known != nullptr ? *known : Adopt(one.given, one.storage, call.Writes(one.storage));
    step.uses.insert(storage);
    if (one.written) step.changes.insert(storage);
  }
  if (call.draws) NoteDraw(call.generator, &step);
  std::vector<c10::IValue> results;
  size_t index = 0;
  for (const c10::IValue& twin : twins) {
    results.push_back(
        Mapped(twin, [&](const at::Tensor& one) { return Result(one, index++, call, &step); }));
  }
  if (!step.changes.empty()) steps_.push_back(std::move(step));
  stack->erase(stack->end() - static_cast<int64_t>(call.values.size()), stack->end());
  stack->insert(stack->end(), results.begin(), results.end());
}

size_t Recording::Adopt(const at::Tensor& tensor, const c10::Storage& twin, bool written) {
  const c10::Storage& own = tensor.storage();
  const auto bytes = static_cast<int64_t>(own.nbytes());
  kept_ += bytes;
  if (kept_ > kKept) {
    throw Refused(absl::StrCat("computes with values that the model's code made itself, ", kept_,
                               " bytes of them; at most ", kKept, " can be kept"));
  }
  if (written && !own.unsafeGetStorageImpl()->resizable()) {
    throw Refused("writes to memory that is not LibTorch's");
  }
  const at::Tensor values = OnStorage(own, {c10::kByte, {bytes}, {1}, 0}).clone();
  const size_t storage = Track(twin);
  AddMaker(storage, [values] { return values.clone(); });
  if (written) {
    device::Withhold(*own.unsafeGetStorageImpl(), kWithout);
    tracked_[storage].seen.emplace(own.getWeakStorageImpl());
    by_seen_[own.unsafeGetStorageImpl()] = storage;
  }
  return storage;
}

void Recording::NoteDraw(const at::Generator& generator, Step* step) {
  const bool process = !generator.defined() || IsProcessGenerator(generator);
  step->draws = true;
  step->generator = process ? nullptr : generator.unsafeGetGeneratorImpl();
  const auto [draws, first] = draws_.try_emplace(step->generator);
  if (first) {
    draws->second.first = process ? process_->State() : StateOf(generator);
    draws->second.next = draws->second.first;
    if (!process) draws->second.generator = generator;
  }
  CheckState(draws->second);
}

void Recording::CheckState(const Draws& draws) const {
  const at::Tensor now = draws.generator.defined() ? StateOf(draws.generator) : process_->State();
  if (!now.equal(draws.first)) {
    throw Refused("the model's code has seeded a generator again, or has drawn from it itself");
  }
}

at::Tensor Recording::Result(const at::Tensor& twin, size_t index, const Call& call, Step* step) {
  for (const Call::Argument& one : call.tensors) {
    if (one.twin.is_same(twin)) return one.given;
  }
  if (!twin.has_storage() || !twin.is_meta() || twin.layout() != at::kStrided) {
    throw Refused("gives a tensor without strides");
  }
  if (Find(by_twin_, twin) != nullptr) {
    throw Refused("gives two tensors that share memory, or one that shares an argument's");
  }
  const size_t storage = Track(twin.storage());
  step->made.push_back({storage, GeometryOf(twin), index});
  step->changes.insert(storage);
  return Seen(storage, GeometryOf(twin));
}

void Recording::End() {
  const Pause pause;
  if (!refusal_.empty()) throw Refused(refusal_);
  for (const auto& [generator, draws] : draws_) CheckState(draws);
  if (!draws_.empty()) Replay({});
  process_->Leave(process_->State());  // the code may have seeded the generator
  for (const auto& [generator, draws] : draws_) {
    if (generator == nullptr) {
      process_->Leave(draws.next);
    } else {
      SetState(draws.generator, draws.next);
    }
  }
  process_.reset();
}

bool Recording::Has(const at::Tensor& tensor) const { return Find(by_seen_, tensor) != nullptr; }

std::function<at::Tensor()> Recording::Maker(const at::Tensor& tensor) {
  return [this, storage = *Find(by_seen_, tensor), geometry = GeometryOf(tensor)] {
    return OnStorage(Replay({storage}).at(storage), geometry).contiguous();
  };
}

void Recording::Settle() {
  for (size_t i = 0; i < tracked_.size(); ++i) {
    if (!tracked_[i].seen.has_value()) continue;
    const auto seen = tracked_[i].seen->lock();
    if (seen == nullptr) continue;
    const c10::Storage values = Replay({i}).at(i);
    device::Give(*seen, OnStorage(values, {c10::kByte, {0}, {1}, 0}));
    by_seen_.erase(seen.get());
  }
}

Recording::Storages Recording::Replay(const std::set<size_t>& wanted) {
  const Pause pause;
  const at::NoGradGuard no_grad;
  std::set<size_t> needed = wanted;
  std::vector<size_t> steps;  // in descending order
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    const bool unknown = step.draws && !step.state.defined();
    if (!unknown && std::none_of(step.changes.begin(), step.changes.end(),
                                 [&](size_t storage) { return needed.contains(storage); })) {
      continue;
    }
    steps.push_back(i);
    needed.insert(step.uses.begin(), step.uses.end());
  }
  std::map<size_t, size_t> last;  // by storage: the last step that uses or changes it
  const auto each = [this](size_t step, auto&& with) {
    for (const size_t storage : steps_[step].uses) with(storage);
    for (const size_t storage : steps_[step].changes) with(storage);
  };
  for (const size_t step : steps) {
    each(step, [&](size_t storage) { last.emplace(storage, step); });
  }
  Storages real;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    RunStep(steps_[*step], &real);
    activity::Moved();
    each(*step, [&](size_t storage) {
      if (last.at(storage) == *step && !wanted.contains(storage)) real.erase(storage);
    });
  }
  return real;
}

void Recording::RunStep(Step& step, Storages* real) {
  if (step.maker) {
    (*real)[*step.changes.begin()] = step.maker().storage();
    return;
  }
  c10::Stack stack;
  for (const c10::IValue& value : step.arguments) {
    stack.push_back(Mapped(value, [&](const at::Tensor& twin) {
      return OnStorage(real->at(*Find(by_twin_, twin)), GeometryOf(twin));
    }));
  }
  if (step.draws) {
    Draw(step, &stack);
  } else {
    step.operation->callBoxed(&stack);
  }
  const std::vector<at::Tensor> results = TensorsOf(stack);
  for (const Made& made : step.made) {
    const at::Tensor& result = results.at(made.result);
    TORCH_CHECK(GeometryOf(result) == made.geometry, step.operation->schema().name(),
                " gives a tensor of another shape or layout than it did when it was recorded");
    (*real)[made.storage] = result.storage();
  }
}

void Recording::Draw(Step& step, c10::Stack* stack) {
  Draws& draws = draws_.at(step.generator);
  const bool known = step.state.defined();
  if (!known) step.state = draws.next;
  if (step.generator == nullptr) {
    std::optional<BorrowedProcessGenerator> borrowed;
    BorrowedProcessGenerator& process = process_.has_value() ? *process_ : borrowed.emplace();
    process.SetState(step.state);
    step.operation->callBoxed(stack);
    if (!known) draws.next = process.State();
    return;
  }
  const at::Generator generator = draws.generator.clone();
  SetState(generator, step.state);
  for (c10::IValue& value : *stack) {
    if (value.isGenerator()) value = generator;
  }
  step.operation->callBoxed(stack);
  if (!known) draws.next = StateOf(generator);
}

}  // namespace muster::models
