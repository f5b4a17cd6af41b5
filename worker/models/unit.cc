#include "worker/models/unit.h"

#include <string>
#include <utility>

#include "c10/core/GradMode.h"
#include "worker/models/recompute.h"

namespace muster::models {

bool IsLackOfMemory(const std::string& text) {
  return text.find("can't allocate memory") != std::string::npos ||
         text.find("std::bad_alloc") != std::string::npos;
}

at::Tensor ForwardContext::Call(Unit& unit, const at::Tensor& x) {
  Tensors outputs = CallMany(unit, {x});
  if (outputs.size() != 1) {
    throw ModelError("unit '" + unit.name() + "': expected one output for Call, found " +
                     std::to_string(outputs.size()) + "; CallMany takes them");
  }
  return std::move(outputs[0]);
}

Tensors ForwardContext::CallMany(Unit& unit, const Tensors& inputs) {
  if (recomputed_.empty() || !training() || !c10::GradMode::is_enabled() || recomputing_) {
    return unit.ForwardMany(inputs, *this);
  }
  const bool recomputed = recomputed_.contains(&unit);
  if (use_observer_ != nullptr) use_observer_->Used(unit, recomputed);
  return recomputed ? ForwardRecomputed(unit, inputs, *this) : unit.ForwardMany(inputs, *this);
}

void ForwardContext::Recompute(const std::vector<const Unit*>& units) {
  recomputed_ = {units.begin(), units.end()};
  repeated_.clear();
  for (std::vector<const Unit*> rest = units; !rest.empty();) {
    const Unit* const unit = rest.back();
    rest.pop_back();
    if (!repeated_.insert(unit).second) continue;
    for (const auto& child : unit->children()) rest.push_back(child.get());
  }
}

at::Tensor Unit::Forward(const at::Tensor& x, ForwardContext& context) {
  throw ModelError("unit '" + name_ + "' has no Forward with one input");
}

Tensors Unit::ForwardMany(const Tensors& inputs, ForwardContext& context) {
  if (inputs.size() != 1) {
    throw ModelError("unit '" + name_ + "': expected one input, found " +
                     std::to_string(inputs.size()));
  }
  return {Forward(inputs[0], context)};
}

std::vector<Parameter> Unit::Parameters() const {
  std::vector<Parameter> all;
  Collect(&all);
  return all;
}

void Unit::Collect(std::vector<Parameter>* out) const {
  for (const auto& [is_parameter, index] : order_) {
    if (is_parameter) {
      out->push_back(parameters_[index]);
    } else {
      children_[index]->Collect(out);
    }
  }
}

std::vector<Buffer> Unit::Buffers() const {
  std::vector<Buffer> all;
  CollectBuffers(&all);
  return all;
}

void Unit::CollectBuffers(std::vector<Buffer>* out) const {
  out->insert(out->end(), buffers_.begin(), buffers_.end());
  for (const auto& child : children_) child->CollectBuffers(out);
}

void Unit::ReplaceParameter(size_t index, at::Tensor tensor) {
  parameters_[index].tensor = std::move(tensor);
}

size_t Unit::AddParameter(std::string full_name, at::Tensor tensor) {
  tensor.requires_grad_(true);
  order_.emplace_back(true, parameters_.size());
  parameters_.push_back({std::move(full_name), std::move(tensor)});
  return parameters_.size() - 1;
}

size_t Unit::AddBuffer(std::string full_name, at::Tensor tensor) {
  buffers_.push_back({std::move(full_name), std::move(tensor)});
  return buffers_.size() - 1;
}

Unit& Unit::AddChild(std::unique_ptr<Unit> child) {
  order_.emplace_back(false, children_.size());
  children_.push_back(std::move(child));
  return *children_.back();
}

}  // namespace muster::models
