#include "worker/models/plugin/units.h"

#include <cstdint>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/models/output_check.h"

namespace muster::plugin {

// Access of the worker to the registrations of a unit.
class UnitAccess {
 public:
  static auto& parameters(Unit& unit) { return unit.parameters_; }
  static auto& buffers(Unit& unit) { return unit.buffers_; }
  static auto& children(Unit& unit) { return unit.children_; }
  static auto& order(Unit& unit) { return unit.order_; }
};

}  // namespace muster::plugin

namespace muster::models {
namespace {

using plugin::UnitAccess;

// Returns a problem of the tensor; empty: none.
std::string Wrong(const at::Tensor& tensor, bool may_be_int64) {
  if (!tensor.defined()) return "found no tensor";
  if (!tensor.device().is_cpu()) return "expected one on the CPU";
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous())
    return "expected a contiguous one";
  if (!tensor.is_leaf()) return "expected a leaf, found the result of a computation";
  const auto type = tensor.scalar_type();
  if (type == at::kFloat || (may_be_int64 && type == at::kLong)) return "";
  return absl::StrCat("expected Float", may_be_int64 ? " or Long" : "", ", found ",
                      c10::toString(type));
}

// Finds all problems of the tensors of a tree.
class TreeCheck {
 public:
  explicit TreeCheck(Problems* problems) : problems_(problems) {}

  void Visit(plugin::Unit& unit) {
    for (const auto& parameter : UnitAccess::parameters(unit)) {
      Visit("parameter", parameter.name, parameter.tensor, /*may_be_int64=*/false);
    }
    for (const auto& buffer : UnitAccess::buffers(unit)) {
      Visit("buffer", buffer.name, buffer.tensor, /*may_be_int64=*/true);
    }
    for (const auto& child : UnitAccess::children(unit)) {
      if (child == nullptr) {
        problems_->Add(absl::StrCat("unit '", unit.name(), "': expected a child, found nothing"));
      } else {
        Visit(*child);
      }
    }
  }

 private:
  void Visit(const char* what, const std::string& name, const at::Tensor& tensor,
             bool may_be_int64) {
    std::string wrong = Wrong(tensor, may_be_int64);
    if (name.empty()) wrong = "expected a name";
    if (!names_.insert(name).second) wrong = "the name appears twice";
    if (wrong.empty() && tensor.numel() > 0 &&
        !memory_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      wrong = "it shares memory with another parameter or buffer";
    }
    if (!wrong.empty()) problems_->Add(absl::StrCat(what, " '", name, "': ", wrong));
  }

  Problems* const problems_;
  std::set<std::string> names_;
  std::set<const void*> memory_;
};

std::string NameOf(const plugin::Unit& unit) {
  return unit.name().empty() ? "root" : absl::StrCat("unit '", unit.name(), "'");
}

}  // namespace

absl::StatusOr<std::unique_ptr<PluginUnit>> PluginUnit::Create(const std::string& who,
                                                               plugin::Unit& inner,
                                                               std::vector<int64_t> row) {
  Problems problems;
  TreeCheck(&problems).Visit(inner);
  RETURN_IF_ERROR(problems.ToStatus(absl::StatusCode::kInvalidArgument, who));
  auto unit = absl::WrapUnique(new PluginUnit(who, inner, std::move(row)));
  if (unit->Parameters().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": expected parameters to train, found none"));
  }
  return unit;
}

PluginUnit::PluginUnit(const std::string& who, plugin::Unit& inner, std::vector<int64_t> row)
    : Unit(inner.name()),
      who_(absl::StrCat(who, ": ", NameOf(inner))),
      inner_(inner),
      row_(std::move(row)) {
  for (const auto& [is_parameter, index] : UnitAccess::order(inner)) {
    if (is_parameter) {
      const auto& parameter = UnitAccess::parameters(inner)[index];
      AddParameter(parameter.name, parameter.tensor);
    } else {
      plugin::Unit& child = *UnitAccess::children(inner)[index];
      callable_.push_back(
          static_cast<PluginUnit*>(&AddChild(absl::WrapUnique(new PluginUnit(who, child, {})))));
    }
  }
  for (const auto& buffer : UnitAccess::buffers(inner)) AddBuffer(buffer.name, buffer.tensor);
}

Tensors PluginUnit::ForwardMany(const Tensors& inputs, ForwardContext& context) {
  // A strategy replaces a parameter only in this object. The plug-in's unit must use the same
  // tensor.
  for (size_t i = 0; i < own_parameters().size(); ++i) {
    at::Tensor& theirs = UnitAccess::parameters(inner_)[i].tensor;
    if (!theirs.is_same(parameter(i))) theirs = parameter(i);
  }
  if (!row_.empty() && inputs.size() != 1) {
    throw ModelError(absl::StrCat(who_, ": expected one input, found ", inputs.size()));
  }
  PluginContext inner_context(who_, callable_, context);
  const Tensors outputs = CallPlugin(who_, [&] {
    if (row_.empty()) return inner_.ForwardMany(inputs, inner_context);
    return inner_.ForwardMany({InRows(inputs[0], row_)}, inner_context);
  });
  if (outputs.empty()) throw ModelError(who_ + ": expected a tensor from Forward, found nothing");
  for (const at::Tensor& y : outputs) {
    if (!y.defined()) throw ModelError(who_ + ": expected a tensor from Forward, found nothing");
  }
  return outputs;
}

at::Tensor PluginContext::Call(plugin::Unit& unit, const at::Tensor& x) {
  Tensors outputs = CallMany(unit, {x});
  if (outputs.size() != 1) {
    throw ModelError(absl::StrCat(who_, ": calls ", NameOf(unit), " by Call, but it has ",
                                  outputs.size(), " outputs; CallMany takes them"));
  }
  return std::move(outputs[0]);
}

Tensors PluginContext::CallMany(plugin::Unit& unit, const Tensors& inputs) {
  for (PluginUnit* callable : callable_) {
    if (&callable->inner() != &unit) continue;
    for (const at::Tensor& x : inputs) {
      if (!x.defined())
        throw ModelError(absl::StrCat(who_, ": calls ", NameOf(unit), " with no tensor"));
    }
    try {
      return context_.CallMany(*callable, inputs);
    } catch (const ModelError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      throw WorkersOwn{std::current_exception()};
    }
  }
  throw ModelError(
      absl::StrCat(who_, ": calls ", NameOf(unit), ", which is none of its children (AddChild)"));
}

}  // namespace muster::models
