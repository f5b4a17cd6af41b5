#include "common/jobfile/yaml_message.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobfile/near_name.h"
#include "common/jobfile/scalar.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"
#include "common/utf8/utf8.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using jobspec::ChildPath;
using jobspec::ElementPath;

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& name = jobspec::NameOf(*type.field(i));
    // Two fields may have the same name.
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Returns whether messages of this type describe a stage in a job file.
bool IsOfAStage(const Descriptor& type) {
  const Descriptor& stage = *v1::StageSpec::descriptor();
  if (&type == &stage) return true;
  for (int i = 0; i < stage.field_count(); ++i) {
    if (stage.field(i)->message_type() == &type) return true;
  }
  return false;
}

jobspec::KeyValue ValueOf(const YAML::Node& node) {
  if (node.IsMap()) return jobspec::KeyValue::kMapping;
  return node.IsSequence() ? jobspec::KeyValue::kList : jobspec::KeyValue::kScalar;
}

// The first "$NAME", "${" or "$(" of a path, which a shell would replace; empty if there is none.
std::string ShellVariable(const std::string& path) {
  for (size_t at = path.find('$'); at != std::string::npos; at = path.find('$', at + 1)) {
    const size_t begin = at + 1;
    if (begin == path.size()) return "";
    if (path[begin] == '{' || path[begin] == '(') return path.substr(at, 2);
    size_t end = begin;
    while (end < path.size() && (absl::ascii_isalnum(path[end]) || path[end] == '_')) ++end;
    if (end > begin) return path.substr(at, end - at);
  }
  return "";
}

bool IsAllDigits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns whether a field has no value, which messages and lists allow.
bool IsNothing(const YAML::Node& node) { return !node.IsDefined() || node.IsNull(); }

// Gives a field of a oneof its default. Otherwise a refused choice would also be reported as no
// choice.
void Choose(const FieldDescriptor& field, Message* message) {
  const auto* oneof = field.real_containing_oneof();
  const auto* reflection = message->GetReflection();
  if (oneof == nullptr || reflection->HasOneof(*message, oneof)) return;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    reflection->MutableMessage(message, &field);
    return;
  }
  const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  google::protobuf::TextFormat::ParseFieldValueFromString(text ? "''" : "0", &field, message);
}

}  // namespace

int LineOf(const YAML::Node& node, int otherwise) {
  return node.IsDefined() && !node.Mark().is_null() ? node.Mark().line + 1 : otherwise;
}

std::string UnknownKey(const std::string& name, const Descriptor& type, std::string* near) {
  const std::vector<std::string> names = FieldNames(type);
  std::string problem = "unknown key";
  if (IsOfAStage(type) && v1::JobSpec::descriptor()->FindFieldByName(name) != nullptr) {
    absl::StrAppend(&problem, "; ", name,
                    " is a key of the job: its stages share one model, one strategy and one "
                    "optimizer, which are made once and never replaced or wrapped again; another ",
                    name,
                    " needs another job, which can begin with the weights of this one "
                    "(start.checkpoint)");
  }
  *near = NearName(name, names);
  if (!near->empty()) absl::StrAppend(&problem, "; did you mean ", *near, "?");
  if (names.empty()) {
    absl::StrAppend(&problem, "; no key is allowed here");
  } else if (IsAllDigits(name)) {
    absl::StrAppend(&problem, "; a ',' ends a value: write numbers without it");
  } else {
    absl::StrAppend(&problem, "; allowed: ", absl::StrJoin(names, ", "));
  }
  return problem;
}

void YamlMessageReader::Read(const YAML::Node& node, const std::string& path, Message* message) {
  if (IsNothing(node)) return;
  const auto line = lines_.find(path);
  const int own_line = line == lines_.end() ? 0 : line->second;
  if (const FieldDescriptor* list = jobspec::BareList(*message->GetDescriptor()); list != nullptr) {
    if (node.IsSequence()) return ReadField(node, *list, path, own_line, message);
    problems_.Add(path, absl::StrCat("found ", Found(node), "; allowed: a list"),
                  LineOf(node, own_line));
    return;
  }
  const std::vector<std::string> names = FieldNames(*message->GetDescriptor());
  if (!node.IsMap()) {
    std::string problem = absl::StrCat("found ", Found(node), "; allowed: a mapping");
    if (!names.empty()) absl::StrAppend(&problem, " with the keys ", absl::StrJoin(names, ", "));
    const bool named = node.IsScalar() && message->GetDescriptor()->FindFieldByName(node.Scalar());
    if (named) absl::StrAppend(&problem, " (write {", node.Scalar(), ": ...})");
    problems_.Add(path, problem, LineOf(node, own_line));
    return;
  }
  for (const auto& entry : node) ReadKey(entry.first, entry.second, path, message);
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    if (meant_.count(jobspec::PathOf(path, *type.field(i))) > 0) Choose(*type.field(i), message);
  }
}

bool YamlMessageReader::IsName(const YAML::Node& key, const std::string& path) {
  if (key.IsScalar()) return true;
  const int line = LineOf(key, 0);
  problems_.Add(absl::StrCat(path, "?", line),
                absl::StrCat("found ", Found(key), " as a key; allowed: a name"), line);
  return false;
}

bool YamlMessageReader::IsFirst(const std::string& path, int line) {
  const auto [first, inserted] = lines_.emplace(path, line);
  if (!inserted)
    problems_.Add(path, absl::StrCat("given twice, first in line ", first->second), line);
  return inserted;
}

void YamlMessageReader::ReadKey(const YAML::Node& key, const YAML::Node& value,
                                const std::string& path, Message* message) {
  if (!IsName(key, path)) return;
  const int line = LineOf(key, 0);
  const std::string& name = key.Scalar();
  const std::string child = ChildPath(path, name);
  const FieldDescriptor* field = jobspec::FieldOf(*message->GetDescriptor(), name, ValueOf(value));
  if (field == nullptr) {
    std::string near;
    problems_.Add(child, UnknownKey(name, *message->GetDescriptor(), &near), line);
    if (!near.empty()) meant_.insert(ChildPath(path, near));
    return;
  }
  if (!IsFirst(child, line)) return;
  if (const auto* oneof = field->real_containing_oneof(); oneof != nullptr) {
    const FieldDescriptor* chosen =
        message->GetReflection()->GetOneofFieldDescriptor(*message, oneof);
    if (chosen != nullptr) {
      problems_.Add(child,
                    absl::StrCat("only one of ", absl::StrJoin(jobspec::Alternatives(*oneof), ", "),
                                 " is allowed, and line ", lines_[ChildPath(path, chosen->name())],
                                 " has ", chosen->name()),
                    line);
      return;
    }
  }
  ReadField(value, *field, child, line, message);
}

void YamlMessageReader::ReadField(const YAML::Node& value, const FieldDescriptor& field,
                                  const std::string& path, int line, Message* message) {
  if (field.is_map()) {
    ReadMap(value, field, path, line, message);
  } else if (!field.is_repeated()) {
    ReadValue(value, field, path, line, message);
  } else if (value.IsSequence()) {
    int index = 0;
    for (const auto& element : value) {
      const std::string child = ElementPath(path, index++);
      lines_[child] = LineOf(element, line);
      ReadValue(element, field, child, lines_[child], message);
    }
  } else if (!IsNothing(value)) {
    lines_[ElementPath(path, 0)] = line;
    ReadValue(value, field, ElementPath(path, 0), line, message);
  }
}

void YamlMessageReader::ReadMap(const YAML::Node& value, const FieldDescriptor& field,
                                const std::string& path, int line, Message* message) {
  if (IsNothing(value)) return;
  if (!value.IsMap()) {
    problems_.Add(path, absl::StrCat("found ", Found(value), "; allowed: a mapping (name: value)"),
                  LineOf(value, line));
    return;
  }
  const Descriptor& type = *field.message_type();
  for (const auto& entry : value) {
    if (!IsName(entry.first, path)) continue;
    const std::string child = ChildPath(path, entry.first.Scalar());
    const int child_line = LineOf(entry.first, line);
    if (!IsFirst(child, child_line)) continue;
    if (!entry.second.IsScalar()) {
      problems_.Add(child, absl::StrCat("found ", Found(entry.second), "; allowed: a text"),
                    child_line);
      continue;
    }
    Message* added = message->GetReflection()->AddMessage(message, &field);
    const auto* reflection = added->GetReflection();
    reflection->SetString(added, type.map_key(), entry.first.Scalar());
    reflection->SetString(added, type.map_value(), entry.second.Scalar());
  }
}

void YamlMessageReader::ReadValue(const YAML::Node& value, const FieldDescriptor& field,
                                  const std::string& path, int line, Message* message) {
  const auto* reflection = message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Message* child = field.is_repeated() ? reflection->AddMessage(message, &field)
                                         : reflection->MutableMessage(message, &field);
    Read(value, path, child);
    return;
  }
  if (IsNothing(value)) {
    problems_.Add(path, absl::StrCat("has no value; allowed: ", Expected(field)), line);
    Choose(field, message);
    return;
  }
  if (const auto problem = SetScalar(value, field, message); problem.has_value()) {
    problems_.Add(path, *problem, LineOf(value, line));
    Choose(field, message);
    return;
  }
  const bool directory =
      jobspec::RuleOf(field).text() == v1::FieldRule::CHECKPOINT && !field.is_repeated() &&
      jobspec::IsDirectory(message->GetReflection()->GetString(*message, &field));
  if (directory || jobspec::IsPath(field)) {
    MakePathAbsolute(field, path, line, message);
  }
}

const std::string& YamlMessageReader::BaseFolder(const std::string& path) const {
  for (std::string at = path; !at.empty(); at = jobspec::ParentPath(at)) {
    const auto folder = other_folders_.find(at);
    if (folder != other_folders_.end()) return folder->second;
  }
  return base_folder_;
}

void YamlMessageReader::MakePathAbsolute(const FieldDescriptor& field, const std::string& path,
                                         int line, Message* message) {
  const auto* reflection = message->GetReflection();
  const int last = field.is_repeated() ? reflection->FieldSize(*message, &field) - 1 : 0;
  const std::string found = field.is_repeated()
                                ? reflection->GetRepeatedString(*message, &field, last)
                                : reflection->GetString(*message, &field);
  // Refuses "~/ckpt" and "$SCRATCH/ckpt", which would be folders beside the job file.
  const std::string first = found.substr(0, found.find('/'));
  const bool home = found == "~" || (found[0] == '~' && first.size() < found.size());
  const std::string variable = ShellVariable(found);
  if (home || !variable.empty()) {
    problems_.Add(path,
                  absl::StrCat("found '", found, "'; '", home ? first : variable,
                               "' has no meaning here, write the whole path"),
                  line);
  }
  const std::string& folder = BaseFolder(path);
  if (found.rfind('/', 0) != 0 && ValidUtf8Prefix(folder) < folder.size()) {
    // A folder that is not UTF-8: the job's message could not be sent.
    problems_.Add(path,
                  absl::StrCat("the path is relative to the folder ", ValidUtf8(folder),
                               ", whose name is not UTF-8; give the folder another name, or write "
                               "an absolute path"),
                  line);
    return;
  }
  const std::string absolute =
      (std::filesystem::path(folder) / found).lexically_normal().string();
  if (field.is_repeated()) {
    reflection->SetRepeatedString(message, &field, last, absolute);
  } else {
    reflection->SetString(message, &field, absolute);
  }
}

}  // namespace muster::jobfile
