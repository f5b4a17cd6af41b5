#include "worker/models/exported/run.h"

#include <memory>
#include <optional>
#include <utility>

#include "ATen/autocast_mode.h"
#include "ATen/core/List.h"
#include "ATen/ops/scalar_tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "worker/device/generator.h"
#include "worker/models/autocast_state.h"
#include "worker/models/exported/argument.h"
#include "worker/models/seed.h"

namespace muster::models::exported {
namespace {

// The modes of a scope of the model's code, during the life of the object.
class ActiveScope {
 public:
  ActiveScope(const Scope& scope, c10::DeviceType device) {
    if (scope.computes_gradients.has_value()) gradients_.emplace(*scope.computes_gradients);
    if (!scope.autocast.has_value()) return;
    AutocastState state = AutocastState::Now(device);
    state.enabled = scope.autocast->enabled;
    state.keeps_casts = scope.autocast->keeps_casts;
    if (scope.autocast->type.has_value()) state.type = *scope.autocast->type;
    at::autocast::increment_nesting();
    autocast_.emplace(state);
  }
  ~ActiveScope() {
    if (!autocast_.has_value()) return;
    // As torch.autocast does at the end of the outermost scope.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  ActiveScope(const ActiveScope&) = delete;
  ActiveScope& operator=(const ActiveScope&) = delete;

 private:
  std::optional<c10::AutoGradMode> gradients_;
  std::optional<ScopedAutocastState> autocast_;
};

// Makes the process-wide generator of the device continue the rank's own generator during the life
// of the object. Operators without an argument for a generator draw from the process-wide one.
class DrawsFromContext {
 public:
  explicit DrawsFromContext(at::Generator& own) : own_(own) {
    if (own.device().is_cpu()) {
      process_.emplace();
      process_->SetState(StateOf(own));
    } else {
      SetState(process(), StateOf(own));
    }
  }
  ~DrawsFromContext() {
    SetState(own_, process_.has_value() ? process_->State() : StateOf(process()));
  }
  DrawsFromContext(const DrawsFromContext&) = delete;
  DrawsFromContext& operator=(const DrawsFromContext&) = delete;

 private:
  at::Generator process() const { return device::ProcessGenerator(own_.device()); }

  at::Generator& own_;
  std::optional<BorrowedProcessGenerator> process_;
};

class Run {
 public:
  Run(const GraphUnit& unit, const RunContext& run) : unit_(unit), run_(run), frame_(unit.frame) {}

  Tensors Forward(Tensors tensors) {
    for (size_t i = tensors.size(); i-- > 0;) {
      // Numbers are on the CPU on every rank.
      const bool number = i < unit_.inputs.size() && unit_.inputs[i] != ValueKind::kTensor;
      if (!number) device_ = tensors[i].device();
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      frame_[i] =
          i < unit_.inputs.size() ? Unpacked(tensors[i], unit_.inputs[i]) : c10::IValue(tensors[i]);
    }
    tensors.clear();  // the frame has them until their last use
    std::optional<ActiveScope> scope;
    const Scope* active = nullptr;
    static const Scope& kPlain = *new Scope;
    for (const Node& node : unit_.nodes) {
      const Scope* const wanted = node.scope == kPlain ? nullptr : &node.scope;
      if ((active == nullptr) != (wanted == nullptr) ||
          (active != nullptr && !(*active == *wanted))) {
        scope.reset();
        active = wanted;
        if (active != nullptr) scope.emplace(*active, device_.type());
      }
      if (node.call.has_value()) {
        Call(node);
      } else {
        Step(node);
      }
      for (const int value : node.last_uses) frame_[value] = c10::IValue();
    }
    scope.reset();
    Tensors outputs;
    for (const GraphUnit::Output& one : unit_.outputs) {
      outputs.push_back(Packed(frame_[one.value], one.kind));
    }
    return outputs;
  }

 private:
  static c10::IValue Unpacked(const at::Tensor& tensor, ValueKind kind) {
    switch (kind) {
      case ValueKind::kTensor:
        return tensor;
      case ValueKind::kInt:
        return tensor.item<int64_t>();
      case ValueKind::kFloat:
        return tensor.item<double>();
      case ValueKind::kBool:
        return tensor.item<bool>();
    }
    return {};
  }

  static at::Tensor Packed(const c10::IValue& value, ValueKind kind) {
    switch (kind) {
      case ValueKind::kTensor:
        return value.toTensor();
      case ValueKind::kInt:
        return at::scalar_tensor(value.toInt(), at::TensorOptions().dtype(at::kLong));
      case ValueKind::kFloat:
        return at::scalar_tensor(value.toDouble(), at::TensorOptions().dtype(at::kDouble));
      case ValueKind::kBool:
        return at::scalar_tensor(value.toBool(), at::TensorOptions().dtype(at::kBool));
    }
    return {};
  }

  void Call(const Node& node) {
    Tensors inputs;
    for (const Argument& one : node.arguments) {
      const c10::IValue& value = frame_[one.value];
      inputs.push_back(value.isTensor()   ? value.toTensor()
                       : value.isInt()    ? Packed(value, ValueKind::kInt)
                       : value.isDouble() ? Packed(value, ValueKind::kFloat)
                                          : Packed(value, ValueKind::kBool));
    }
    const Tensors outputs = run_.call(*node.call, inputs);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const int value = node.results[i].values[0];
      if (value >= 0) frame_[value] = outputs[i];
    }
  }

  // Runs an operator or a function, with an error that names it.
  void Step(const Node& node) {
    std::string wrong;
    try {
      if (node.function.has_value()) return CallFunction(node);
      return CallOperator(node);
    } catch (const ModelError&) {
      throw;
    } catch (const c10::Error& error) {
      if (IsLackOfMemory(error.what_without_backtrace())) throw;
      wrong = error.what_without_backtrace();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      if (IsLackOfMemory(error.what())) throw;
      wrong = error.what();
    }
    throw ModelError(absl::StrCat(run_.who, ": ", node.place, ": ", wrong.substr(0, 400)));
  }

  void CallFunction(const Node& node) {
    std::vector<c10::IValue> arguments;
    for (const Argument& one : node.arguments) arguments.push_back(ValueOf(one));
    auto result = CallPython(*node.function, arguments);
    if (!result.ok()) {
      throw ModelError(absl::StrCat(run_.who, ": ", std::string(result.status().message())));
    }
    const int value = node.results[0].values[0];
    if (value >= 0) frame_[value] = *std::move(result);
  }

  void CallOperator(const Node& node) {
    stack_.clear();
    bool own = false;  // an argument is the rank's generator
    for (const Argument& one : node.arguments) {
      own |= one.kind == Argument::Kind::kGenerator;
      stack_.push_back(ValueOf(one));
    }
    std::optional<DrawsFromContext> draws;
    if (node.draws && !own) draws.emplace(run_.context.generator());
    node.op->callBoxed(&stack_);
    draws.reset();
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Result& result = node.results[i];
      if (!result.is_list) {
        if (result.values[0] >= 0) frame_[result.values[0]] = std::move(stack_[i]);
        continue;
      }
      const std::vector<at::Tensor> list = stack_[i].toTensorVector();
      if (list.size() != result.values.size()) {
        throw ModelError(absl::StrCat(run_.who, ": ", node.place, ": expected ",
                                      result.values.size(), " tensors, found ", list.size()));
      }
      for (size_t j = 0; j < list.size(); ++j) {
        if (result.values[j] >= 0) frame_[result.values[j]] = list[j];
      }
    }
    stack_.clear();
  }

  c10::IValue ValueOf(const Argument& argument) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        return argument.constant;
      case Argument::Kind::kValue:
        return frame_[argument.value];
      case Argument::Kind::kNumberAsTensor:
        return AsTensor(frame_[argument.value].toScalar());
      case Argument::Kind::kTensors: {
        c10::List<at::Tensor> list;
        for (const Element& one : argument.elements) list.push_back(frame_[one.value].toTensor());
        return list;
      }
      case Argument::Kind::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const Element& one : argument.elements) {
          list.push_back(one.value < 0 ? std::optional<at::Tensor>()
                                       : std::optional(frame_[one.value].toTensor()));
        }
        return list;
      }
      case Argument::Kind::kIntegers: {
        c10::List<int64_t> list;
        for (const Element& one : argument.elements) {
          list.push_back(one.value < 0 ? one.integer : frame_[one.value].toInt());
        }
        return list;
      }
      case Argument::Kind::kDevice:
        return device_;
      case Argument::Kind::kGenerator:
        return run_.context.generator();
    }
    return {};
  }

  const GraphUnit& unit_;
  const RunContext& run_;
  std::vector<c10::IValue> frame_;
  c10::Stack stack_;
  c10::Device device_ = c10::kCPU;
};

}  // namespace

Tensors RunUnit(const GraphUnit& unit, Tensors tensors, const RunContext& run) {
  return Run(unit, run).Forward(std::move(tensors));
}

}  // namespace muster::models::exported
