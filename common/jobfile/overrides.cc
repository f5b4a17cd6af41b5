#include "common/jobfile/overrides.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobfile/scalar.h"
#include "common/jobfile/yaml_document.h"
#include "common/jobfile/yaml_message.h"
#include "common/jobspec/fields.h"

namespace muster::jobfile {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using jobspec::ChildPath;
using jobspec::ElementPath;

// One part of a key: a name, or the index of an element.
struct Step {
  std::string name;
  std::optional<int> index;
};

// Parses "stages[0].fit" into stages, [0], fit. Nothing for an invalid key.
std::optional<std::vector<Step>> ParseKey(const std::string& key) {
  std::vector<Step> steps;
  size_t at = 0;
  while (true) {
    const size_t end = std::min(key.find_first_of(".[", at), key.size());
    if (end == at) return std::nullopt;
    steps.push_back({.name = key.substr(at, end - at)});
    at = end;
    while (at < key.size() && key[at] == '[') {
      const size_t close = key.find(']', at);
      if (close == std::string::npos) return std::nullopt;
      const std::string digits = key.substr(at + 1, close - at - 1);
      int index = 0;
      if (digits.find_first_not_of("0123456789") != std::string::npos ||
          !absl::SimpleAtoi(digits, &index)) {
        return std::nullopt;
      }
      steps.push_back({.index = index});
      at = close + 1;
    }
    if (at == key.size()) return steps;
    if (key[at] != '.') return std::nullopt;
    ++at;
  }
}

bool IsNothing(const YAML::Node& node) { return !node.IsDefined() || node.IsNull(); }

// The value of a key; nothing if the mapping does not have it.
std::optional<YAML::Node> Entry(const YAML::Node& map, const std::string& name) {
  for (const auto& entry : map) {
    if (entry.first.IsScalar() && entry.first.Scalar() == name) return YAML::Node(entry.second);
  }
  return std::nullopt;
}

// Copies a mapping, with another value for one key. Anchors and aliases of the file share nodes. So
// the nodes along the path to a change are copied, and no node is changed in place.
YAML::Node WithEntry(const YAML::Node& map, const std::string& name, const YAML::Node& value) {
  YAML::Node changed(YAML::NodeType::Map);
  bool found = false;
  for (const auto& entry : map) {
    const bool same = !found && entry.first.IsScalar() && entry.first.Scalar() == name;
    changed.force_insert(entry.first, same ? value : entry.second);
    found = found || same;
  }
  if (!found) changed.force_insert(YAML::Node(name), value);
  return changed;
}

// One setting. Its methods return a node with the value in it, or nothing and the reason in
// `problem`.
class Setting {
 public:
  Setting(std::vector<Step> steps, YAML::Node value)
      : steps_(std::move(steps)), value_(std::move(value)) {}

  // `at`: the first step below `node`.
  std::optional<YAML::Node> InMessage(const YAML::Node& node, const Descriptor& type,
                                      const std::string& path, size_t at) {
    if (!IsNothing(node) && !node.IsMap()) {
      return Refuse(path, absl::StrCat("found ", Found(node), " in the file; allowed: a mapping"));
    }
    const std::string& name = steps_[at].name;
    if (steps_[at].index.has_value()) return Refuse(path, "is not a list");
    const std::string child_path = ChildPath(path, name);
    const bool goes_on = at + 1 < steps_.size();
    const FieldDescriptor* field = jobspec::FieldOf(
        type, name, goes_on ? jobspec::KeyValue::kMapping : jobspec::KeyValue::kScalar);
    if (field == nullptr) {
      std::string near;
      const std::string what = UnknownKey(name, type, &near);
      if (!near.empty()) meant_ = ChildPath(path, near);
      return Refuse(child_path, what);
    }
    const auto entry = Entry(node, name);
    if (!entry.has_value() && field->real_containing_oneof() != nullptr) {
      const std::vector<std::string> names = jobspec::Alternatives(*field->real_containing_oneof());
      for (const std::string& other : names) {
        if (!Entry(node, other).has_value()) continue;
        return Refuse(child_path, absl::StrCat("only one of ", absl::StrJoin(names, ", "),
                                               " is allowed, and ", ChildPath(path, other),
                                               " is given; to replace it, write --set '", path,
                                               "={", name, ": ...}'"));
      }
    }
    const auto child = InField(entry.value_or(YAML::Node()), *field, child_path, at + 1);
    if (!child.has_value()) return std::nullopt;
    return WithEntry(node, name, *child);
  }

  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }
  // The field that is nearest to an unknown name; empty if there is none.
  const std::string& meant() const { return meant_; }

 private:
  std::optional<YAML::Node> InField(const YAML::Node& node, const FieldDescriptor& field,
                                    const std::string& path, size_t at) {
    path_ = path;
    if (at == steps_.size()) return value_;
    if (field.is_map()) return InMap(node, path, at);
    if (field.is_repeated()) return InList(node, field, path, at);
    if (steps_[at].index.has_value()) return Refuse(path, "is not a list");
    return InValue(node, field, path, at);
  }

  std::optional<YAML::Node> InMap(const YAML::Node& node, const std::string& path, size_t at) {
    if (!IsNothing(node) && !node.IsMap()) {
      return Refuse(path, absl::StrCat("found ", Found(node), " in the file; allowed: a mapping"));
    }
    if (steps_[at].index.has_value() || at + 1 < steps_.size()) {
      return Refuse(path,
                    "takes names that you choose, with a value and no further keys below them");
    }
    path_ = ChildPath(path, steps_[at].name);
    return WithEntry(node, steps_[at].name, value_);
  }

  std::optional<YAML::Node> InList(const YAML::Node& node, const FieldDescriptor& field,
                                   const std::string& path, size_t at) {
    if (!steps_[at].index.has_value()) {
      return Refuse(path, absl::StrCat("is a list: say which element, as in ", path, "[0].",
                                       steps_[at].name));
    }
    std::vector<YAML::Node> elements;
    if (node.IsSequence()) {
      for (const auto& element : node) elements.push_back(element);
    } else if (!IsNothing(node)) {
      elements.push_back(node);  // the element stands for a list of one
    }
    const size_t index = *steps_[at].index;
    if (index > elements.size()) {
      return Refuse(
          ElementPath(path, index),
          absl::StrCat("the list has ", elements.size(),
                       elements.size() == 1 ? " element" : " elements",
                       "; allowed: an index up to ", elements.size(), ", which adds one"));
    }
    if (index == elements.size()) elements.emplace_back();
    path_ = ElementPath(path, index);
    const auto element = at + 1 == steps_.size() ? std::optional<YAML::Node>(value_)
                                                 : InValue(elements[index], field, path_, at + 1);
    if (!element.has_value()) return std::nullopt;
    YAML::Node changed(YAML::NodeType::Sequence);
    for (size_t i = 0; i < elements.size(); ++i)
      changed.push_back(i == index ? *element : elements[i]);
    return changed;
  }

  // Sets a singular field, or one element of a list.
  std::optional<YAML::Node> InValue(const YAML::Node& node, const FieldDescriptor& field,
                                    const std::string& path, size_t at) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return InMessage(node, *field.message_type(), path, at);
    }
    return Refuse(path, absl::StrCat("has nothing below it; allowed: ", Expected(field)));
  }

  std::nullopt_t Refuse(const std::string& path, const std::string& problem) {
    path_ = path;
    problem_ = problem;
    return std::nullopt;
  }

  const std::vector<Step> steps_;
  const YAML::Node value_;
  std::string path_;
  std::string problem_;
  std::string meant_;
};

}  // namespace

Overridden ApplyOverrides(const YAML::Node& root, const std::vector<std::string>& settings,
                          const Descriptor& type) {
  Overridden result{.root = root};
  for (const std::string& text : settings) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    const std::string source = absl::StrCat("--set ", key);
    const auto refuse = [&](const std::string& path, const std::string& message) {
      auto* problem = result.problems.add_problems();
      problem->set_path(path);
      problem->set_message(message);
      problem->set_source(source);
    };
    const auto steps = ParseKey(key);
    if (equals == std::string::npos || !steps.has_value()) {
      refuse("",
             "is not a setting; allowed: KEY=VALUE, such as optimizer.adamw.lr=1e-4 or "
             "stages[0].fit.steps=10");
      continue;
    }
    const YamlDocument value = ParseYamlDocument(text.substr(equals + 1));
    if (!value.problem.empty()) {
      refuse(key, value.problem);
      continue;
    }
    Setting setting(*steps, value.root);
    const auto changed = setting.InMessage(result.root, type, "", 0);
    if (!changed.has_value()) {
      refuse(setting.path(), setting.problem());
      if (!setting.meant().empty()) result.meant.insert(setting.meant());
      continue;
    }
    result.root = *changed;
    // The new value replaces values that were set below it before.
    std::erase_if(result.sources, [&](const auto& entry) {
      const std::string& path = entry.first;
      return path.size() > setting.path().size() && path.rfind(setting.path(), 0) == 0 &&
             (path[setting.path().size()] == '.' || path[setting.path().size()] == '[');
    });
    result.sources[setting.path()] = source;
  }
  return result;
}

}  // namespace muster::jobfile
