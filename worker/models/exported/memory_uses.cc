#include "worker/models/exported/memory_uses.h"

#include <cstddef>
#include <string>

namespace muster::models::exported {
namespace {

// Returns whether an operator may return an argument itself or a view of one, although its schema
// does not say so. muster.export has the same list (client/python/muster/export/_nodes.py).
bool MayReturnArgument(const std::string& name) {
  static const auto& names =
      *new std::set<std::string>{"aten::alpha_dropout",     "aten::atleast_1d",
                                 "aten::atleast_2d",        "aten::atleast_3d",
                                 "aten::broadcast_tensors", "aten::dropout",
                                 "aten::feature_dropout",   "aten::feature_alpha_dropout",
                                 "aten::meshgrid",          "aten::type_as"};
  return names.contains(name);
}

// Returns whether an operator changes running_mean and running_var, which its schema does not say.
bool ChangesStatistics(const c10::FunctionSchema& schema, const Node& node) {
  static const auto& modes =
      *new std::map<std::string, std::string>{{"aten::batch_norm", "training"},
                                              {"aten::native_batch_norm", "training"},
                                              {"aten::instance_norm", "use_input_stats"}};
  const auto mode = modes.find(schema.name());
  if (mode == modes.end()) return false;
  const auto index = schema.argumentIndexWithName(mode->second);
  if (!index.has_value()) return true;
  const Argument& training = node.arguments[*index];
  return training.kind != Argument::Kind::kConstant || training.constant.toBool();
}

}  // namespace

std::set<int> MemoryUses::Of(int value) const {
  if (value < bases_) return {value};
  const auto views = views_.find(value);
  return views == views_.end() ? std::set<int>() : views->second;
}

std::set<int> MemoryUses::Of(const Argument& argument) const {
  std::set<int> found;
  ForValues(argument, [&](int value) { found.merge(Of(value)); });
  return found;
}

void MemoryUses::AddView(int value, const std::set<int>& bases) {
  if (value >= 0 && !bases.empty()) views_[value].insert(bases.begin(), bases.end());
}

void MemoryUses::AddViews(const c10::FunctionSchema& schema, const Node& node) {
  std::set<int> bases;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const bool alias = schema.arguments()[i].alias_info() != nullptr;
    if (alias || MayReturnArgument(schema.name())) bases.merge(Of(node.arguments[i]));
  }
  for (const Result& result : node.results) {
    for (const int value : result.values) AddView(value, bases);
  }
}

std::set<int> MemoryUses::WrittenBy(const c10::FunctionSchema& schema, const Node& node) const {
  std::set<int> written;
  const bool statistics = ChangesStatistics(schema, node);
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const bool is_statistic =
        statistics && (argument.name() == "running_mean" || argument.name() == "running_var");
    if (writes || is_statistic) written.merge(Of(node.arguments[i]));
  }
  return written;
}

}  // namespace muster::models::exported
