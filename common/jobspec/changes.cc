#include "common/jobspec/changes.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/jobspec/fields.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Adds the maps, which ForEachValue does not visit.
void AddMaps(const Message& message, const std::string& path, std::vector<Line>* lines) {
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.is_map()) continue;
    std::vector<Line> entries;
    for (int at = 0; at < message.GetReflection()->FieldSize(message, &field); ++at) {
      const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, at);
      const auto text = [&](const FieldDescriptor* part) {
        return FieldValue{&entry, part, -1, ""}.Exact();
      };
      entries.push_back({absl::StrCat(ChildPath(path, field.name()), "[",
                                      text(field.message_type()->map_key()), "]"),
                         text(field.message_type()->map_value())});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Line& a, const Line& b) { return a.path < b.path; });
    lines->insert(lines->end(), entries.begin(), entries.end());
  }
}

}  // namespace

std::vector<Line> LinesOf(const Message& message) {
  std::vector<Line> lines;
  AddMaps(message, "", &lines);
  ForEachValue(message, [&lines](const FieldValue& value) {
    if (value.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      lines.push_back({value.path, value.Exact()});
      return;
    }
    lines.push_back({value.path, "{}"});
    AddMaps(value.Message(), value.path, &lines);
  });
  return lines;
}

namespace {

using google::protobuf::FieldDescriptor;

// A message in which nothing is set.
constexpr char kEmpty[] = "{}";

std::string ValueText(const FieldValue& value) {
  switch (value.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return kEmpty;
    case FieldDescriptor::CPPTYPE_STRING:
      return value.String();
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto& type = *value.field->enum_type();
      const auto* named = type.FindValueByNumber(value.Enum());
      // The value 0, the first one, has no name.
      return named != nullptr && named->index() > 0 ? EnumNames(type)[named->index() - 1]
                                                    : absl::StrCat(value.Enum());
    }
    default:
      return value.Exact();
  }
}

// The values by path. A message has a value only if nothing in it is set.
std::map<std::string, std::string> ValuesOf(const v1::JobSpec& spec) {
  std::map<std::string, std::string> values;
  ForEachValue(spec, [&](const FieldValue& value) {
    for (std::string at = value.path; !at.empty(); at = ParentPath(at)) {
      const auto outer = values.find(at);
      if (outer != values.end() && outer->second == kEmpty) values.erase(outer);
    }
    values[value.path] = ValueText(value);
  });
  return values;
}

bool IsBelow(const std::string& path, absl::string_view top) {
  return path == top ||
         (absl::StartsWith(path, top) && (path[top.size()] == '.' || path[top.size()] == '['));
}

constexpr std::array kMayChange = {
    "activation_checkpointing",
    "batch.accumulate",
    "batch.per_rank",
    "checkpoint",
    "clip_grad_norm",
    "collectives",
    "data.predict",
    "data.test",
    "data.validate",
    "evaluation",
    "export",
    "loss_scale",
    "metrics",
    "on_nan",
    "optimizer",
    "precision",
    "priority",
    "profile",
    "restart",
    "schedule",
    "stages",
    "threads",
    "time_limit",
    "watchdog",
    "when_cut_off",
};

constexpr char kDoNotFit[] = "the job's checkpoints would not fit";

// Returns whether both jobs have the same number of stages, of the same kinds.
bool SameKinds(const v1::JobSpec& before, const v1::JobSpec& after) {
  return std::equal(before.stages().begin(), before.stages().end(), after.stages().begin(),
                    after.stages().end(), [](const v1::StageSpec& a, const v1::StageSpec& b) {
                      return a.kind_case() == b.kind_case();
                    });
}

// Returns why this job may not make a change that is allowed in general; absent: the job may.
std::optional<std::string> WhyFixedWithin(const v1::JobSpec& before, const v1::JobSpec& after,
                                          const std::string& path) {
  if (IsBelow(path, "checkpoint.directory") && before.has_checkpoint()) {
    return "the job continues with the checkpoints in this directory";
  }
  if (IsBelow(path, "precision") && before.precision() != after.precision() &&
      (before.precision() == v1::JobSpec::FLOAT16 || after.precision() == v1::JobSpec::FLOAT16)) {
    return "only float16 has a loss scale, and checkpoints contain it";
  }
  if (IsBelow(path, "stages") && !SameKinds(before, after)) {
    return "the stages that are over are counted by their place; within a stage the values may "
           "change";
  }
  if (!IsBelow(path, "optimizer")) return std::nullopt;
  if (before.optimizer().kind_case() != after.optimizer().kind_case()) {
    return "the job's checkpoints have the state of another kind of optimizer";
  }
  if (IsBelow(path, "optimizer.state")) return "it counts only at the beginning of a job";
  if (IsBelow(path, "optimizer.sgd.momentum") &&
      (before.optimizer().sgd().momentum() == 0) != (after.optimizer().sgd().momentum() == 0)) {
    return "with and without momentum the state of the optimizer differs";
  }
  const bool of_group = IsBelow(path, "optimizer.groups");
  for (const char* part : {"match", "momentum", "optimizer"}) {
    if (of_group && absl::StrContains(path, absl::StrCat("].", part))) return kDoNotFit;
  }
  return std::nullopt;
}

// Shortens a long value to its end, which tells more than its beginning: the value may be a path.
std::string Shortened(const std::string& value) {
  constexpr size_t kLongest = 40;
  if (value.size() <= kLongest) return value;
  size_t begin = value.size() - kLongest;
  // Moves to the beginning of a UTF-8 character.
  while (begin < value.size() && (static_cast<uint8_t>(value[begin]) & 0xC0) == 0x80) ++begin;
  return absl::StrCat("...", value.substr(begin));
}

std::string WhyFixed(const std::string& path) {
  if (IsBelow(path, "name")) return "it would be another job";
  if (IsBelow(path, "model") || IsBelow(path, "ema") || IsBelow(path, "strategy")) {
    return kDoNotFit;
  }
  if (IsBelow(path, "trainable")) {
    return "`muster freeze` and `muster unfreeze` change it while the job runs";
  }
  if (IsBelow(path, "start")) return "it counts only at the beginning of a job";
  if (IsBelow(path, "world_size") || IsBelow(path, "device")) {
    return "a retry keeps the job's ranks";
  }
  if (IsBelow(path, "loss")) return "the steps before were trained with the other loss";
  if (IsBelow(path, "data") || IsBelow(path, "batch") || IsBelow(path, "seed") ||
      IsBelow(path, "uneven_inputs")) {
    return "the place in the data that a checkpoint names would be another one";
  }
  return "it would be another job";
}

}  // namespace

std::vector<Change> Changes(const v1::JobSpec& before, const v1::JobSpec& after) {
  const std::map<std::string, std::string> old_values = ValuesOf(before);
  const std::map<std::string, std::string> new_values = ValuesOf(after);
  std::map<std::string, Change> changes;
  for (const auto& [path, value] : old_values) changes[path] = {path, value, ""};
  for (const auto& [path, value] : new_values) {
    changes[path].path = path;
    changes[path].new_value = value;
  }
  std::vector<Change> different;
  for (const auto& [path, change] : changes) {
    if (change.old_value == change.new_value) continue;
    // The values in the message are listed instead.
    const auto inner = changes.upper_bound(path);
    const bool listed = inner != changes.end() && IsBelow(inner->first, path);
    const bool empty = change.old_value == kEmpty || change.new_value == kEmpty;
    if (!(empty && listed)) different.push_back(change);
  }
  // The texts in a map are not among the values.
  const bool of_model = std::any_of(different.begin(), different.end(), [](const Change& change) {
    return IsBelow(change.path, "model");
  });
  using google::protobuf::util::MessageDifferencer;
  if (!of_model && !MessageDifferencer::Equals(before.model(), after.model())) {
    different.push_back({"model.plugin.options", "", "others"});
  }
  return different;
}

v1::SpecProblems FixedSettings(const v1::JobSpec& before, const v1::JobSpec& after) {
  v1::SpecProblems problems;
  std::set<std::string> told;
  for (const Change& change : Changes(before, after)) {
    const bool may_change = std::any_of(kMayChange.begin(), kMayChange.end(),
                                        [&](const char* top) { return IsBelow(change.path, top); });
    const std::optional<std::string> why = may_change
                                               ? WhyFixedWithin(before, after, change.path)
                                               : std::optional<std::string>(WhyFixed(change.path));
    if (!why.has_value()) continue;
    // An error has no room for all values of another model or optimizer.
    const std::string top = change.path.substr(0, change.path.find('.'));
    if (!told.insert(absl::StrCat(top, " ", *why)).second) continue;
    auto* problem = problems.add_problems();
    problem->set_path(change.path);
    problem->set_message(absl::StrCat(
        change.new_value.empty() ? "left out" : absl::StrCat("found ", Shortened(change.new_value)),
        ", the job has ", change.old_value.empty() ? "none" : Shortened(change.old_value),
        "; fixed once it has run: ", *why));
  }
  return problems;
}

}  // namespace muster::jobspec
